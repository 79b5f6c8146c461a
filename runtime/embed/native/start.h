// Makes sure the embedded interpreter runs, in this very process.
#ifndef SPECDEC_START_H
#define SPECDEC_START_H

#include "specdec.h"

// 0, or the reason why Python cannot be used. `python` as in specdec_start.
specdec_status specdec_ready(const char *python);

#endif
