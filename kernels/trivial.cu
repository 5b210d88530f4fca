// SPDX-License-Identifier: Apache-2.0
// cluster_trivial: the least kernel that proves a cluster was really formed.
//
// Launch: grid (clusters, CS, 1), cluster (1, CS, 1), any block size, any dynamic shared memory.
// Every CTA stores a word that only it can know, derived from `nonce` and its place in the grid,
// in its static shared memory and, where the launch has dynamic shared memory, in the last word of
// it. After a cluster barrier thread 0 reads that word of every peer through DSMEM and adds them.
// A second cluster barrier keeps every peer alive until all have read.
//
// out: 8 u32 per CTA at (blockIdx.x * gridDim.y + blockIdx.y) * 8:
//   0 magic 0x7470726f   1 %cluster_nctarank   2 %cluster_ctarank   3 DSMEM sum, modulo 2^32
//   4 %smid              5 dynamic shared memory seen (bytes)       6 blockIdx.x   7 blockIdx.y
// The host recomputes word 3: sum over ranks of value(blockIdx.x, rank) + the same again for the
// last dynamic word where there is one. spin_cycles holds the CTA on its SM, so that clusters that
// can run together do; 0 for a plain probe.
//
// Compiled twice: with run-time cluster dimensions, and with -DTHORPROBE_CLUSTER=n.

#ifdef THORPROBE_CLUSTER
#define CLUSTER_DIMS __cluster_dims__(1, THORPROBE_CLUSTER, 1)
#else
#define CLUSTER_DIMS
#endif

typedef unsigned int u32;

__device__ __forceinline__ u32 cluster_size() {
  u32 n;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}
__device__ __forceinline__ u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ u32 sm_id() {
  u32 s;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(s));
  return s;
}
__device__ __forceinline__ u32 dynamic_bytes() {
  u32 b;
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(b));
  return b;
}
__device__ __forceinline__ void cluster_barrier() {
  __syncwarp();  // .aligned asks for a converged warp
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
__device__ __forceinline__ u32 read_peer(const u32* mine, u32 rank) {
  u32 local = (u32)__cvta_generic_to_shared(mine), remote, value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
  return value;
}

extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(1024)
    cluster_trivial(u32* out, u32 nonce, u32 pad, unsigned long long spin_cycles) {
  extern __shared__ u32 dynamic_words[];
  __shared__ u32 static_word;
  const u32 index = blockIdx.x * gridDim.y + blockIdx.y;
  const u32 bytes = dynamic_bytes();
  const u32 value = nonce ^ ((index + 1u) * 2654435761u);
  u32* last = bytes >= 4 ? &dynamic_words[bytes / 4 - 1] : &static_word;
  if (threadIdx.x == 0) {
    static_word = value;
    *last = value;
  }
  __syncthreads();
  cluster_barrier();
  if (threadIdx.x == 0) {
    const u32 size = cluster_size();
    u32 sum = 0;
    for (u32 rank = 0; rank < size; ++rank) {
      sum += read_peer(&static_word, rank);
      if (bytes >= 4) sum += read_peer(last, rank);
    }
    u32* report = out + (unsigned long long)index * 8;
    report[1] = size;
    report[2] = cluster_rank();
    report[3] = sum;
    report[4] = sm_id();
    report[5] = bytes;
    report[6] = blockIdx.x;
    report[7] = blockIdx.y;
    report[0] = 0x7470726fu;
    const long long start = clock64();
    while ((unsigned long long)(clock64() - start) < spin_cycles) {
    }
  }
  cluster_barrier();
}
