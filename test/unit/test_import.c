/* SPDX-License-Identifier: Apache-2.0
 * Traces of other systems: what is in the file is what is planned, in seconds and bytes, layers as the planner counts them; every refusal
 * names file and line. Bytes of strangers are in test/fuzz. With ECHELON_DATA also published files, whose sums are known. */
#include "echi_import.h"
#include "text_files.h"

#include <math.h>
#include <unistd.h>

static char path[64];
static struct echi_import trace;
static struct echi_alpha_betas links;
static struct ech_error error;

static ech_status load(const char *text) {
    write_bytes(path, text, strlen(text));
    memset(&error, 0, sizeof error);
    return echi_import_load(path, &trace, &error);
}
static void taken(const char *text) {
    if (load(text) != ECH_OK) fail_msg("'%s': %s", text, error.text);
}
static void check_sentence(ech_status status, const char *text, const char *sentence) {
    if (status != ECH_E_FORMAT || !strstr(error.text, sentence)) fail_msg("'%s': '%s', expected '%s'", text, error.text, sentence);
    if (!strstr(error.text, path)) fail_msg("'%s' does not name the file", error.text);
}
static void refused(const char *text, const char *sentence) {
    trace.count = -7;
    check_sentence(load(text), text, sentence);
    assert_int_equal(trace.count, -7);
}
static void is(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-12 * fabs(expected))) fail_msg("%.17g, expected %.17g", got, expected);
}
static void layer_is(int i, const char *name, double forward, double backward, double comm, double bytes) {
    assert_string_equal(trace.layer[i].name, name);
    is(trace.layer[i].forward, forward), is(trace.layer[i].backward, backward), is(trace.layer[i].comm, comm), is(trace.layer[i].bytes,
        bytes);
}

/* ------------------------------------------------------------------ table */

#define HEADER "Id Name Forward Backward Comm. Size\n"

static void a_table_is_read(void **state) {
    (void)state;
    taken("# of a cluster of two\n" HEADER "0 data 2e6 0 0 0\n1 scale 10 20 0 0\r\n2\tconv1 100.5 200 3000 139776   # kernels 11 x 11\n"
          "3 relu1 5 7 0 0\n\n4 pool1 1 2 0 0\n5 fc 50 60 4000 64");
    assert_int_equal(trace.format, ECHI_IMPORT_TABLE);
    assert_int_equal(trace.count, 2);
    layer_is(0, "conv1", 116.5e-6, 229e-6, 3e-3, 139776);   /* with what is in front of it, and behind it up to the next */
    layer_is(1, "fc", 50e-6, 60e-6, 4e-3, 64);
    is(trace.reading, 2);
    assert_true(trace.batch == 0 && !trace.halved && trace.merged == 0 && trace.cut == 2);
    taken("1 a 1 2 3 4\n2 b 1 2 3 4\n");   /* without a header, and without a row of data */
    assert_true(trace.count == 2 && trace.reading == 0);
    taken("# lenet5 on glyphs, rank 0 of 2: mean of 40 steps, in microseconds and bytes\n"
          "Id\tName\tForward\tBackward\tComm.\tSize\n0\tdata\t0\t0\t0\t0\n1\tlayer0\t52.100\t27.600\t0.000\t624\n");
    assert_true(trace.count == 1 && trace.layer[0].bytes == 624 && !echi_import_alpha_beta(&trace, &links));
    taken("id NAME forward backward comm size\n0 data 0 0 0 0\n1 a 1 0 0 4000000000\n");
}

static void tables_are_refused(void **state) {
    (void)state;
    static const struct { const char *text, *sentence; } row[] = {
        {"Id Name Forward Size\n1 a 1 2 3 4\n", ":1: the columns of a trace are 'Id Name Forward Backward Comm. Size', found 'Size'"},
        {"Id Name Forward Backward Comm.. Size\n", "found 'Comm..'"},
        {HEADER "\nrelu a 1 2 3 4\n", ":3: a row begins with its Id, a whole number from 0 to 1000000, found 'relu'"},
        {HEADER "0.5 a 1 2 3 4\n", "found '0.5'"},
        {HEADER "1000001 a 1 2 3 4\n", "found '1000001'"},
        {HEADER "1 a 1 2 3 4\n3 b 1 2 3 4\n", ":3: the Ids of a trace rise by one a row, and layer 2 is missing, found '3'"},
        {"2 a 1 2 3 4\n", "layer 1 is missing"},
        {HEADER "1 a 1 2 3 4\n2 b 1 2 3 4\n2 c 1 2 3 4\n",
         ":4: the Ids of a trace rise by one a row, and this one was there before, found '2'"},
        {HEADER "1 a 1 -2 3 4\n", ":2: a row has 6 columns: Id, Name, then Forward, Backward and Comm. in us from 0 to 3600000000, Size in "
                                  "bytes from 0 to 4000000000, found '-2'"},
        {HEADER "1 a -0.1 2 3 4\n", "found '-0.1'"},
        {HEADER "1 a 1 2 nan 4\n", "found 'nan'"},
        {HEADER "1 a 1 2 4e9 4\n", "found '4e9'"},
        {HEADER "1 a 1 2 3 4000000001\n", "found '4000000001'"},
        {HEADER "1 a 1 2 3\n", "found the end of the line"},
        {HEADER "1\n", "found the end of the line"},
        {HEADER "1 a 1 2 3 4 5\n", "found '5'"},
        {HEADER "0 conv1 1 2 3 4\n", ":2: row 0 is the layer that reads data, and has a Size of 0: layers begin with Id 1, found 'conv1'"},
        {HEADER "0 data 1 0 0 0\n", "no trace that can be planned: it has no rows of layers"},
        {HEADER, "no trace that can be planned: it has no rows of layers"},
        {HEADER "1 a 1 2 3 0\n", "none of its layers has parameters, so nodes would exchange nothing"},
        {HEADER "1 a 0 0 3 4\n", "its layers take less than a microsecond together"},
        {HEADER "1 a 3e9 1e9 3 4\n", "its layers take more than 3600 s together"},
        {HEADER "1 a 1 2 3 3e9\n2 a 1 2 3 3e9\n", "more than 4000000000 bytes of gradients together"},
        {"", "it is empty"},
        {"# nothing\n\n", "it is empty"},
        {"layer a 1 2 3 4\n", ":1: a trace begins with 'Id Name Forward Backward Comm. Size' (or its row 0), with a line of glog that ends "
                              "in [id, elements, us, us], or with 'node1 -- ...' of PipeDream, found 'layer'"},
        {"Idx a\n", "found 'Idx'"},
        {"nodes\n", "found 'nodes'"},
        {"Info\n", "found 'Info'"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) refused(row[i].text, row[i].sentence);
    assert_int_equal(echi_import_load("/nowhere/at/all", &trace, &error), ECH_E_IO);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
}

/* `count` rows of `bytes` and their number each, and the one at `large` of ten times as many. */
static void make_table(int count, double bytes, int large) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 1; i <= count; i++) fprintf(f, "%d layer%d 1 2 %d %g\n", i, i, i % 7, i == large ? 10 * bytes : bytes + i);
    fclose(f);
}

static void too_many_layers_are_planned_together(void **state) {
    (void)state;
    for (int count = 255; count <= 600; count += count < 258 ? 1 : 171) {
        make_table(count, 1000, 2);
        assert_int_equal(echi_import_load(path, &trace, &error), ECH_OK);
        assert_int_equal(trace.count, count <= 256 ? count : 256);
        assert_int_equal(trace.merged, count <= 256 ? 0 : count);
        assert_int_equal(trace.cut, trace.count);
        double forward = 0, backward = 0, bytes = 0;
        for (int i = 0; i < trace.count; i++) {
            forward += trace.layer[i].forward;
            backward += trace.layer[i].backward;
            bytes += trace.layer[i].bytes;
        }
        is(forward, count * 1e-6), is(backward, count * 2e-6);
        is(bytes, 10000 + (count - 1) * 1000 + count * (count + 1) / 2 - 2);
        assert_string_equal(trace.layer[1].name, "layer2");   /* the largest has no neighbour with it, */
        is(trace.layer[1].bytes, 10000);
        if (count == 257) is(trace.layer[2].bytes, 1003 + 1004);   /* and the smallest two have */
    }
    make_table(4096, 1000, 2);
    assert_int_equal(echi_import_load(path, &trace, &error), ECH_OK);
    make_table(4097, 1000, 2);
    check_sentence(echi_import_load(path, &trace, &error), "4097 rows", ":4097: a trace has at most 4096 layers");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 4097; i++) fprintf(f, "[%d, 1, %d, 1]\n", i, 1 + i % 2);
    fclose(f);
    check_sentence(echi_import_load(path, &trace, &error), "4097 arrays", ":4097: a trace has at most 4096 layers");
}

/* -------------------------------------------------------------------- log */

#define GLOG "I0214 23:25:29.141575 37187 distributed.cpp:112] "

static void a_log_is_read(void **state) {
    (void)state;
    static const char dumps[] = GLOG "overheads: [id, size, compute_time, communication_time] at rank 0\n"
                                GLOG "[0, 100, 0, 0]\n" GLOG "[1, 10, 0, 0]\n" GLOG "[2, 200, 0, 0]\n" GLOG "[3, 20, 0, 0]\n"
                                GLOG "[4, 5, 0, 0]\n"
                                GLOG "Iteration 3, loss = 6.9\n"
                                GLOG "[0, 100, 300.5, 40]\n" GLOG "[1, 10, 300.5, 2]\n" GLOG "[2, 200, 100, 30]\nW0214 something else\n"
                                GLOG "[3, 20, 100, 3]\n" GLOG "[4, 5, 100, 1]\n";
    taken(dumps);
    assert_int_equal(trace.format, ECHI_IMPORT_LOG);
    assert_int_equal(trace.count, 3);
    layer_is(0, "array 0", 150.25e-6, 300.5e-6, 42e-6, 440);   /* weights and biases have one time */
    layer_is(1, "array 2", 50e-6, 100e-6, 33e-6, 880);
    layer_is(2, "array 4", 50e-6, 100e-6, 1e-6, 20);           /* a third array is another layer's, also where it takes as long */
    assert_true(trace.halved && trace.batch == 0 && trace.reading == 0);
    taken("[0, 1, 5, 6, 0]\n[1,2,7,8,14]\r\n");   /* with merged times; without glog's words */
    assert_true(trace.count == 2);
    is(trace.layer[1].comm, 8e-6);
}

static void logs_are_refused(void **state) {
    (void)state;
    static const struct { const char *text, *sentence; } row[] = {
        {GLOG "nothing\n", "it is a log without rows of [id, elements, backward us, all-reduce us]"},
        {GLOG "[0, 1, 5]\n", ":1: a row is [id, elements, backward us, all-reduce us] or has a fifth column, of merged layers; times from "
                             "0 to 3600000000, elements from 1 to 1000000000, found the end of the line"},
        {GLOG "[0, 1, 5, 6, 7, 8]\n", "found '8'"},
        {GLOG "[0, 1, 5, 6, 7, 8, 9]\n", "found '8'"},
        {GLOG "[0, 1, -5, 6]\n", "found '-5'"},
        {GLOG "[0, 1, 5, -6]\n", "found '-6'"},
        {GLOG "[0, 1, 5, 6, -7]\n", "found '-7'"},
        {GLOG "[0, 0, 5, 6]\n", "found '0'"},
        {GLOG "[0, 1000000001, 5, 6]\n", "found '1000000001'"},
        {GLOG "[-1, 1, 5, 6]\n", "found '-1'"},
        {GLOG "[0.5, 1, 5, 6]\n", "found '0.5'"},
        {GLOG "[0, x, 5, 6]\n", "found 'x'"},
        {GLOG "[1, 1, 5, 6]\n", ":1: the ids of a dump begin with 0 and rise by one: 0 is missing, found '1'"},
        {GLOG "[0, 1, 5, 6]\n" GLOG "[2, 1, 5, 6]\n", ":2: the ids of a dump begin with 0 and rise by one: 1 is missing, found '2'"},
        {GLOG "[0, 1, 5, 6]\n" GLOG "[1, 1, 5, 6]\n" GLOG "[1, 1, 5, 6]\n",
         ":3: the ids of a dump begin with 0 and rise by one: 1 was there before"},
        {GLOG "[0, 1, 0, 6]\n" GLOG "[1, 1, 0, 6]\n", "a log that was written before anything was measured has zeros"},
        {GLOG "[0, 1, 5, 6]\n" GLOG "[1, 1, 4, 6]\n" GLOG "[0, 1, 5, 6]\n",
         "its last dump has fewer rows than the one before: the log breaks off"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) refused(row[i].text, row[i].sentence);
}

/* ------------------------------------------------------------------ graph */

#define NODE(n, what, f, b, act, par)                                                                                                     \
    "node" #n " -- " what " -- forward_compute_time=" #f ", backward_compute_time=" #b ", activation_size=" #act ", parameter_size=" #par \
    "\n"
/* Two pictures of 224 x 224; the lines in no order. A branch: 3 and 9 both read 2, and 10 adds them up. */
static const char branched[] =
    NODE(10, "Add()", 0.5, 0.25, 64, 0) NODE(2, "Conv2d(3, 64, kernel_size=(3, 3))", 4, 8, 64, 400) NODE(1, "Input", 600, 0, 1204224, 0)
    NODE(9, "Conv2d(64, 64)", 1, 2, 64, 800) NODE(3, "BatchNorm2d(64)", 2, 3, 64, 40) NODE(11, "View(16)", 0, 0, 128.000, 0.000)
    NODE(20, "Linear(in_features=16, bias=True)", 3, 5, 80, 1000) NODE(21, "ReLU(inplace)", 1, 1, 80, 0)
    NODE(22, "Linear(a)", 2, 2, 80, 600);

static void a_graph_is_read(void **state) {
    (void)state;
    static const char edges[] = "\tnode11 -- node20\n\tnode10 -- node11\n\tnode3 -- node10\n\tnode9 -- node10\n\tnode2 -- node9\n"
                                "\tnode2 -- node3\n\tnode1 -- node2\n\tnode20 -- node21\n\tnode21 -- node22";
    char text[4000];
    snprintf(text, sizeof text, "%s%s", branched, edges);
    taken(text);
    assert_int_equal(trace.format, ECHI_IMPORT_GRAPH);
    assert_int_equal(trace.count, 5);
    layer_is(0, "node2 Conv2d", 4e-3, 8e-3, 0, 400);
    layer_is(1, "node3 BatchNorm2d", 2e-3, 3e-3, 0, 40);
    layer_is(2, "node9 Conv2d", 1.5e-3, 2.25e-3, 0, 800);   /* with the sum and the view behind it */
    layer_is(3, "node20 Linear", 4e-3, 6e-3, 0, 1000);
    layer_is(4, "node22 Linear", 2e-3, 2e-3, 0, 600);
    assert_true(trace.batch == 2 && trace.cut == 3 && !trace.halved);
    is(trace.reading, 0.6), is(trace.row, 128);
    /* A second way past the view: nobody knows what would be sent. */
    snprintf(text, sizeof text, "%s%s\n\tnode2 -- node22\n", branched, edges);
    taken(text);
    assert_true(trace.cut == 5 && trace.row == 0);
    /* A convolution behind a fully connected layer; the edges come first; a stage is written behind a node. */
    taken("\tnode5 -- node6\nnode5 -- Linear(1) -- forward_compute_time=1, backward_compute_time=1, activation_size=4, parameter_size=4 "
          "-- stage_id=0\n" NODE(6, "Conv2d(1)", 1, 1, 4, 4));
    assert_true(trace.count == 2 && trace.cut == 2 && trace.batch == 0);
    taken(NODE(4, "Conv2d(1)", 1, 1, 4, 4) NODE(5, "Linear(1)", 1, 1, 4, 4) NODE(6, "Conv2d(1)", 1, 1, 4, 4)
          "\tnode4 -- node5\n\tnode5 -- node6\n");
    assert_true(trace.count == 3 && trace.cut == 3);
    /* Fully connected layers alone: there is nothing in front of them. */
    taken(NODE(5, "Linear(1)", 1, 1, 4, 4) NODE(6, "Linear(1)", 1, 1, 4, 4) "\tnode5 -- node6\n");
    assert_true(trace.count == 2 && trace.cut == 2);
    /* In front of the cut nothing takes time, so nobody knows how its layers divide that. */
    taken(NODE(5, "Conv2d(1)", 0, 0, 4, 4) NODE(6, "Linear(1)", 1, 1, 4, 4) "\tnode5 -- node6\n");
    assert_true(trace.count == 2 && trace.cut == 2);
    /* Pictures of 299 pixels; and bytes of no pictures. */
    taken(NODE(1, "Input", 0, 0, 2145624, 0) NODE(6, "Linear(1)", 1, 1, 4, 4));
    assert_int_equal(trace.batch, 2);
    taken(NODE(1, "Input", 0, 0, 1204228, 0) NODE(6, "Linear(1)", 1, 1, 4, 4));
    assert_int_equal(trace.batch, 0);
}

/* Of 300 convolutions and two small layers behind the cut these two are planned together, and nothing across it. */
static void nothing_is_merged_across_the_cut(void **state) {
    (void)state;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 1; i <= 302; i++)
        fprintf(f, "node%d -- %s(1) -- forward_compute_time=1, backward_compute_time=1, activation_size=4, parameter_size=%d\n", i,
                i <= 300 ? "Conv2d" : "Linear", i <= 300 ? 1000 : 4);
    for (int i = 1; i < 302; i++) fprintf(f, "\tnode%d -- node%d\n", i, i + 1);
    fclose(f);
    assert_int_equal(echi_import_load(path, &trace, &error), ECH_OK);
    assert_true(trace.count == 256 && trace.merged == 302 && trace.cut == 255 && trace.row == 4);
    layer_is(255, "node301 Linear", 2e-3, 2e-3, 0, 8);
}

/* The order of lines does not count: all rotations of a file are one trace. */
static void lines_have_no_order(void **state) {
    (void)state;
    static const char *const line[] = {NODE(4, "Conv2d(a)", 1, 2, 4, 4), NODE(7, "Conv2d(b)", 3, 4, 4, 8),
                                       NODE(3, "Conv2d(c)", 5, 6, 4, 12), "\tnode7 -- node4\n", "\tnode7 -- node3\n", "\tnode4 -- node3\n"};
    for (int turn = 0; turn < 6; turn++) {
        char text[1500] = "";
        for (int i = 0; i < 6; i++) strcat(text, line[(i + turn) % 6]);
        taken(text);
        assert_int_equal(trace.count, 3);
        assert_string_equal(trace.layer[0].name, "node7 Conv2d");
        assert_string_equal(trace.layer[1].name, "node4 Conv2d");
        assert_string_equal(trace.layer[2].name, "node3 Conv2d");
    }
}

static void graphs_are_refused(void **state) {
    (void)state;
    static const struct { const char *text, *sentence; } row[] = {
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) "nodeX -- Conv2d(b)\n", ":2: a node is named like node12, found 'nodeX'"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) "layer -- Conv2d(b)\n", ":2: a node is named like node12, found 'layer'"},
        {"node1 Conv2d\n", ":1: '--' stands between a node and its layer, or between two nodes, found 'Conv2d'"},
        {"node1 --\n", ":1: behind '--' there is a layer or another node, found the end of the line"},
        {"node1 -- Conv2d(1, 2)\n",
         ":1: a node is written like 'node2 -- Conv2d(...) -- forward_compute_time=...', found the end of the line"},
        {"node1 -- Conv2d(1) -- forward_compute_time=1, activation_size=4\n",
         ":1: a node has forward_compute_time=, backward_compute_time= (ms, 0 to 3600000), activation_size= and parameter_size= (bytes, 0 "
         "to 4000000000), in this order, found 'activation_size=4'"},
        {NODE(1, "Conv2d(a)", -1, 2, 4, 4), "found '-1'"},
        {NODE(1, "Conv2d(a)", 1, inf, 4, 4), "found 'inf'"},
        {NODE(1, "Conv2d(a)", 1, 2, [4; 4], 4), "found '[4;'"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 5e9), "found '5e9'"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, ), "found ''"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) NODE(1, "ReLU(a)", 1, 2, 4, 0),
         ":2: each node is described once, and this one was there before, found 'node1'"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) "\tnode1 -- node2\n\tnode1 -- node1\n",
         ":2: an edge leads between nodes that are described, and this one is missing, found 'node2'"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) "\tnode1 -- node1 -- node2\n", ":2: nothing more is expected on this line, found '--'"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) "\tnode1 -- node1\n", "there is a cycle in its graph, behind or through node1"},
        {NODE(1, "Conv2d(a)", 1, 2, 4, 4) NODE(2, "Conv2d(a)", 1, 2, 4, 4) NODE(3, "Conv2d(a)", 1, 2, 4, 4)
         "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node2\n", "there is a cycle in its graph, behind or through node2"},
        {NODE(1, "Input", 1, 2, 4, 4), "none of its layers has parameters"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) refused(row[i].text, row[i].sentence);
}

/* ------------------------------------------------------------------ links */

static ech_status load_links(const char *text) {
    write_bytes(path, text, strlen(text));
    memset(&error, 0, sizeof error);
    return echi_alpha_beta_load(path, &links, &error);
}

static void near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-6 * fabs(expected))) fail_msg("%.12g, expected %.12g", got, expected);
}

/* Points of lines give these lines back. */
static void fits_are_exact(void **state) {
    (void)state;
    char text[2000] = "# OSU MPI Allreduce Latency Test v5.4.0\n# Size       Avg Latency(us)\n";
    for (int i = 0; i < 20; i++) sprintf(text + strlen(text), "8,%d %.6f\n", 1000 * (i + 1), 50 + 2.0 * (i + 1));
    assert_int_equal(load_links(text), ECH_OK);
    assert_true(links.pieces == 1 && links.nodes == 8 && links.piece[0].from == 0);
    near(links.piece[0].alpha, 50e-6), near(links.piece[0].beta, 2e-9);
    text[0] = 0;   /* a protocol that changes at 11,000 bytes */
    for (int i = 1; i <= 20; i++) sprintf(text + strlen(text), "%d\t%.6f\n", 1000 * i, i <= 10 ? 50 + 2.0 * i : 500 + 1.0 * i);
    assert_int_equal(load_links(text), ECH_OK);
    assert_true(links.pieces == 2 && links.nodes == 0 && links.piece[1].from == 11000);
    near(links.piece[0].alpha, 50e-6), near(links.piece[0].beta, 2e-9);
    near(links.piece[1].alpha, 500e-6), near(links.piece[1].beta, 1e-9);
    assert_int_equal(load_links("1000000 1.0\n1 1.0\n2000000 10\n"), ECH_OK);   /* below 0 at 0 bytes: no time */
    assert_true(links.piece[0].alpha == 0);
}

static void links_are_refused(void **state) {
    (void)state;
    static const struct { const char *text, *sentence; } row[] = {
        {"4 x\n", ":1: a size is followed by its time in us, above 0 and up to 3600000000, found 'x'"},
        {"4\n", "found the end of the line"},
        {"4 0\n", "found '0'"},
        {"4 1 2\n", ":1: nothing more is expected on this line, found '2'"},
        {"0 1\n", ":1: a line of an OSU log is 'bytes us' or 'nodes,bytes us': bytes from 1 to 1000000000000, nodes from 2 to 1024 and in "
                  "all lines "
                  "the same, found '0'"},
        {"2,-4 1\n", "found '-4'"},
        {"1,4 1\n", "found '1'"},
        {"2,4 1\n4,8 2\n", ":2: a line of an OSU log"},
        {"2,4 1\n8 2\n", ":2: a line of an OSU log"},
        {"2.5,4 1\n", "found '2.5'"},
        {"", "describes no link: it needs the times of two sizes or more, which grow with them"},
        {"4 1\n", "describes no link"},
        {"4 1\n4 2\n", "describes no link"},
        {"4 2\n8 1\n", "describes no link"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) check_sentence(load_links(row[i].text), row[i].text, row[i].sentence);
}

/* A ring of 4 sends 6 messages one after the other, and 6/4 of the bytes over each link. */
static void links_of_an_all_reduce(void **state) {
    (void)state;
    const struct echi_alpha_beta_link ring = echi_alpha_beta_ring((struct echi_alpha_beta){0, 60e-6, 3e-9}, 4);
    is(ring.delay, 5e-6), is(ring.rate, 1 / 2e-9);
    const struct echi_alpha_beta_link message = echi_alpha_beta_message((struct echi_alpha_beta){0, 60e-6, 3e-9});
    is(message.delay, 30e-6), is(message.rate, 1 / 3e-9);
    taken("1 a 1 2 11 1000\n2 b 1 2 21 2000\n3 c 1 2 31 3000\n4 relu 1 1 0 0\n5 d 1 1 0 8\n");
    assert_true(echi_import_alpha_beta(&trace, &links));
    near(links.piece[0].alpha, 1e-6), near(links.piece[0].beta, 1e-8);
    taken("1 a 1 2 0 1000\n2 b 1 2 0 2000\n");
    assert_false(echi_import_alpha_beta(&trace, &links));
}

/* ------------------------------------------------------- what is planned */

static void a_trace_becomes_a_profile_and_a_job(void **state) {
    (void)state;
    struct echi_profile profile = {.apply = 1e-9, .add = 1e-10, .copy = 1e-10, .message = 1e-6};
    static struct echi_job job;
    static const char edges[] = "\tnode11 -- node20\n\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node9\n\tnode9 -- node10\n"
                                "\tnode10 -- node11\n\tnode20 -- node21\n\tnode21 -- node22\n";
    char text[4000];
    snprintf(text, sizeof text, "%s%s", branched, edges);
    taken(text);
    trace.layer[0].bytes = 401;   /* 101 floats */
    echi_import_profile(&trace, "alexnet.txt", &profile);
    const struct echi_times *t = &profile.times;
    assert_true(t->units == 5 && t->cut == 3 && t->count == 2 && t->n[0] == 1 && t->n[1] == 2);
    is(echi_times_trunk(t, 2), 20.75e-3), is(echi_times_head(t, 2), 14e-3);
    is(echi_times_whole(t, 1), 34.75e-3 / 2), is(echi_times_whole(t, 6), 3 * 34.75e-3);   /* in proportion */
    for (int u = 0; u < 5; u++)
        for (int pass = 0; pass < 2; pass++) {
            const double expected = pass == ECHI_FORWARD ? trace.layer[u].forward : trace.layer[u].backward;
            const double takes = echi_times_unit(t, u, (enum echi_pass)pass, 2);
            if (!(fabs(takes - expected) < 1e-6)) fail_msg("unit %d takes %g", u, takes);
        }
    is(profile.parameters, 711);
    is(t->exchange, 711 * 5e-10), is(t->update, 711 * 1e-9), is(t->messages, 6e-6);
    assert_string_equal(profile.machine, "the machine of the trace alexnet.txt");
    echi_import_job(&trace, &job);
    assert_true(job.n_layers == 5 && job.n_params == 711 && job.first_fc == 3 && job.cut_params == 3 && job.border[3].layer == 3 &&
                job.border[3].width == 16 && !job.model
                && !job.data);
    assert_true(job.layer[0].count == 101 && job.layer[4].at == 561 && job.layer[4].count == 150);
    assert_string_equal(job.layer[3].name, "node20 Linear");
    /* Where no float a sample crosses the cut, there is none. */
    trace.row = 7;
    echi_import_job(&trace, &job);
    echi_import_profile(&trace, "x", &profile);
    assert_true(job.first_fc == 5 && job.cut_params == 5 && echi_job_widest(&job) == 0 && t->cut == 5 && t->head[1] == 0);
}

/* It has no arithmetic. */
static void a_trace_is_planned_and_not_run(void **state) {
    (void)state;
    struct ech_config config;
    struct ech_report *report = calloc(1, sizeof *report);
    struct ech_sim_options options = {.trace = path, .workers = 1, .trace_batch = 8};
    assert_non_null(report);
    ech_config_init(&config);
    write_bytes(path, "1 a 1e6 1e6 3 4\n", 16);
    assert_int_equal(ech_config_set(&config, "steps", "0", &error), ECH_OK);
    assert_int_equal(ech_simulate(NULL, NULL, &config, &options, report, &error), ECH_E_UNSUPPORTED);
    options.costs_only = 1;
    assert_int_equal(ech_simulate(NULL, NULL, &config, &options, report, &error), ECH_OK);
    near(report->predicted_images_per_second, 4);
    assert_int_equal(ech_config_set(&config, "steps", "1", &error), ECH_OK);
    assert_int_equal(ech_simulate(NULL, NULL, &config, &options, report, &error), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "it is planned, with costs_only and 0 steps, and not run"));
    options.trace = NULL;
    assert_int_equal(ech_simulate(NULL, NULL, &config, &options, report, &error), ECH_E_ARGUMENT);
    free(report);
}

/* ------------------------------------------------------ published files */

static bool published(const char *name, char *out, size_t cap) {
    const char *data = getenv("ECHELON_DATA");
    snprintf(out, cap, "%s/traces/%s", data ? data : "", name);
    return data && access(out, R_OK) == 0;
}
static void load_published(const char *name) {
    char file[512];
    if (!published(name, file, sizeof file)) skip();
    if (echi_import_load(file, &trace, &error) != ECH_OK) fail_msg("%s", error.text);
}
static double sum(double (*of)(const struct echi_import_layer *)) {
    double all = 0;
    for (int i = 0; i < trace.count; i++) all += of(&trace.layer[i]);
    return all;
}
static double bytes_of(const struct echi_import_layer *l) { return l->bytes; }
static double backward_of(const struct echi_import_layer *l) { return l->backward; }
static double comm_of(const struct echi_import_layer *l) { return l->comm; }

/* Parameters of the networks, by arithmetic: AlexNet 61,100,840, VGG-16 138,357,544. */
static void pipedream_profiles(void **state) {
    (void)state;
    load_published("pipedream-profiles/alexnet.graph.txt");
    assert_true(trace.count == 8 && trace.cut == 5 && trace.batch == 256);
    is(sum(bytes_of), 4.0 * 61100840), is(trace.row, 256 * 9216 * 4.0), is(trace.reading, 0.635902);
    assert_string_equal(trace.layer[0].name, "node2 Conv2d");
    is(trace.layer[0].bytes, 4 * (64 * 3 * 11 * 11 + 64));
    is(trace.layer[0].backward, (6.405 + 0.733 + 1.148) * 1e-3);
    load_published("pipedream-profiles/vgg16.graph.txt");
    assert_true(trace.count == 16 && trace.cut == 13 && trace.batch == 128);
    is(sum(bytes_of), 4.0 * 138357544), is(trace.row, 128 * 25088 * 4.0);
}

/* GoogLeNet with its auxiliary heads has 13,379,136 values, as Caffe aligns them. */
static void bcaffe_logs(void **state) {
    (void)state;
    load_published("bcaffe-googlenet/tmp4comm.log");
    assert_true(trace.count == 64 && trace.merged == 0 && trace.halved);
    is(sum(bytes_of), 4.0 * 13379136);
    near(sum(backward_of), 0.206782922), near(sum(comm_of), 0.261512);
}

static void osu_logs(void **state) {
    (void)state;
    char file[512];
    static const struct { const char *name; int nodes; double alpha, beta; } log[] = {
        {"bcaffe-googlenet/allreduce2.log", 2, 102e-6, 1.66e-9}, {"bcaffe-googlenet/allreduce4.log", 0, 225e-6, 2.07e-9}};
    for (int i = 0; i < 2; i++) {
        if (!published(log[i].name, file, sizeof file)) skip();
        if (echi_alpha_beta_load(file, &links, &error) != ECH_OK) fail_msg("%s", error.text);
        assert_true(links.nodes == log[i].nodes);
        print_message("%s: %d piece(s), alpha %.4g us, beta %.4g ns; from %g: %.4g us, %.4g ns\n", log[i].name, links.pieces,
                      1e6 * links.piece[0].alpha,
                      1e9 * links.piece[0].beta, links.piece[1].from, 1e6 * links.piece[1].alpha, 1e9 * links.piece[1].beta);
    }
}

static void numbers_have_a_point_in_every_locale(void **state) {
    (void)state;
    use_comma_locale();
    taken("1 a 1.5 2 3 4\n");
    is(trace.layer[0].forward, 1.5e-6);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/echelon-import-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_read), cmocka_unit_test(tables_are_refused), cmocka_unit_test(too_many_layers_are_planned_together),
        cmocka_unit_test(a_log_is_read), cmocka_unit_test(logs_are_refused),
        cmocka_unit_test(a_graph_is_read), cmocka_unit_test(nothing_is_merged_across_the_cut),
        cmocka_unit_test(lines_have_no_order), cmocka_unit_test(graphs_are_refused),
        cmocka_unit_test(fits_are_exact), cmocka_unit_test(links_are_refused), cmocka_unit_test(links_of_an_all_reduce),
        cmocka_unit_test(a_trace_becomes_a_profile_and_a_job), cmocka_unit_test(a_trace_is_planned_and_not_run),
        cmocka_unit_test(pipedream_profiles), cmocka_unit_test(bcaffe_logs), cmocka_unit_test(osu_logs),
        cmocka_unit_test(numbers_have_a_point_in_every_locale),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
