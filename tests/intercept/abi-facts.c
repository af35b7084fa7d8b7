/* SPDX-License-Identifier: Apache-2.0 */

/* Prints sizes, offsets and values, one a line: compiled once with our declarations and once
 * (FACTS_THEIRS) with NVIDIA's; the outputs must be equal. FACTS_NVML chooses the library. */

#include <stddef.h>
#include <stdio.h>

#if defined(FACTS_THEIRS) && defined(FACTS_NVML)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#elif defined(FACTS_THEIRS)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#elif defined(FACTS_NVML)
#include "abi/nvml.h"
#else
#include "abi/cuda.h"
#endif

#define SIZE(type) (void) printf("sizeof %s %zu\n", #type, sizeof(type));
#define FIELD(type, field)                                                                         \
    (void) printf("%s.%s %zu %zu\n", #type, #field, offsetof(type, field),                         \
                  sizeof(((type *) 0)->field));
#define VALUE(name) (void) printf("%s %lld\n", #name, (long long) (name));

int main(void) {
#include "abi-facts.def"
    return 0;
}
