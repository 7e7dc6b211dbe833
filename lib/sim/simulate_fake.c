#include "echelon_dev.h"
#include "echi_error.h"
#include "echi_hosts.h"
#include "echi_profile.h"
#include <string.h>
#include <stdio.h>
ech_status ech_simulate(const ech_model *model, const ech_data *data, const struct ech_config *config, const struct ech_sim_options *o,
                        struct ech_report *r, struct ech_error *err) {
    struct echi_hosts h;
    struct echi_profile p;
    (void)data, (void)config, (void)r;
    echi_profile_builtin(&p);
    if (o->profile) ECHI_TRY(echi_profile_load(o->profile, &p, err));
    echi_profile_fit(&p, model);
    ECHI_TRY(o->hosts ? echi_hosts_load(o->hosts, &h, err) : echi_hosts_named(o->workers, o->spread, &h, err));
    echi_hosts_relate(&h, echi_profile_images(&p));
    echi_hosts_free(&h);
    return echi_fail(err, ECH_E_UNSUPPORTED, "sim", "not yet");
}
