/* SPDX-License-Identifier: Apache-2.0
 * An NVRTC that compiles nothing: its PTX has an entry for each word of the text, and the fake driver knows which of these are kernels. */
#include "../../hal/cuda/echi_cuda_api.h"

#include <cctype>
#include <cstring>
#include <string>

#define DECLARE(type, name, parameters) extern "C" __attribute__((visibility("default"))) type name parameters;
ECHI_NVRTC_CALLS(DECLARE)

struct _nvrtcProgram { std::string text, ptx, log; };

const char *nvrtcGetErrorString(nvrtcResult code) { return code ? "NVRTC_ERROR" : "NVRTC_SUCCESS"; }
nvrtcResult nvrtcVersion(int *major, int *minor) {
    *major = 13, *minor = 0;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *text, const char *, int, const char *const *, const char *const *) {
    *out = new _nvrtcProgram{text, "", ""};
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    delete *program;
    *program = NULL;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int, const char *const *) {
    if (p->text.find("__global__") == std::string::npos) {
        p->log = "kernels.cu(1): error: not a kernel\n";
        return NVRTC_ERROR_COMPILATION;
    }
    p->ptx = ".version 6.0\n.target sm_53\n";
    std::string word;
    for (const char c : p->text + " ") {
        if (isalnum((unsigned char)c) || c == '_') word += c;
        else if (!word.empty()) p->ptx += ".entry " + word + "()\n", word.clear();
    }
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *out) {
    *out = p->ptx.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *out) {
    memcpy(out, p->ptx.c_str(), p->ptx.size() + 1);
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *out) {
    *out = p->log.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *out) {
    memcpy(out, p->log.c_str(), p->log.size() + 1);
    return NVRTC_SUCCESS;
}
