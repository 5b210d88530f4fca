// SPDX-License-Identifier: Apache-2.0
// cluster_fault: a test kernel that writes to an address nobody owns, so that the launch succeeds
// and the synchronisation answers 700. The context is finished afterwards (a sticky error).

extern "C" __global__ void cluster_fault(unsigned int* out) {
  if (threadIdx.x == 0) *(volatile unsigned int*)16 = out != 0;
}
