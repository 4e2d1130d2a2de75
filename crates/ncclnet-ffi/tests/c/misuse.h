/* Wrong arguments to every function. */
#ifndef MISUSE_H
#define MISUSE_H

#include "net.h"

/*
 * Each wrong call must give an error code and leave null in the out-parameters. Where there are
 * devices, `device` (name or index) is connected to itself for the calls that need real objects.
 */
void misuse(const char *plugin, int abi, const char *device);

#endif
