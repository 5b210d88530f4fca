// SPDX-License-Identifier: Apache-2.0
// cluster_hang: a test kernel that does not come back before the caller's deadline.
//
// It watches %globaltimer and returns after limit_ns, so that a test that goes wrong still leaves
// the device usable.

extern "C" __global__ void cluster_hang(unsigned int* out, unsigned long long limit_ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < limit_ns);
  if (threadIdx.x == 0) out[blockIdx.x] = (unsigned int)(now - start);
}
