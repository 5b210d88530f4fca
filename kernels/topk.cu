// SPDX-License-Identifier: Apache-2.0
// cluster_topk: exact top-k of every row of a score matrix, one cluster of CTAs per row.
//
// Launch: grid (rows, CS, 1), cluster (1, CS, 1) with CS 1..16, block (1024, 1, 1).
// Dynamic shared memory: HEAD_BYTES + 4 * stage bytes at least; the probed footprints are
// 156,416 B (stage 32,768) and 221,952 B (stage 49,152), those of the kernel this one stands for.
//
//   logits   fp32 [rows, stride], any alignment; only the first lengths[row] of a row are read
//   lengths  i32 [rows]; negative counts as 0, more than stride as stride
//   out      i32 [rows, k]; the indices of the k largest scores in any order, -1 from
//            min(length, k) on. NaN ranks above +inf. Which of several equal scores at the cut
//            are taken is not defined.
//   report   u32 [rows * CS, 4]: %cluster_nctarank, %cluster_ctarank, %smid, path (1 trivial,
//            2 one CTA, 3 whole cluster)
//   k        1..2048;  stage: scores a CTA keeps in shared memory (a slice longer than that is
//            read again from global memory in every pass)
//
// Three paths by row length, as upstream's: length <= k needs no look at the scores; up to 16,384
// rank 0 works alone; longer rows are cut into CS slices. Peers leave early only where nobody
// touches their shared memory.
//
// Selection is a radix search on a 32-bit key that orders scores: 11, 11 and 10 bits a pass. Each
// CTA counts its slice into 2,048 bins; in the cluster, rank r adds up the bins it owns over all
// peers through DSMEM and hands the sum to every peer. After three passes the key of the k-th
// largest score is known exactly, together with how many equal ones are still needed.
//
// Compiled twice: with run-time cluster dimensions, and with -DTHORPROBE_CLUSTER=n.

#ifdef THORPROBE_CLUSTER
#define CLUSTER_DIMS __cluster_dims__(1, THORPROBE_CLUSTER, 1)
#else
#define CLUSTER_DIMS
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 THREADS = 1024;
constexpr u32 BINS = 2048;
constexpr u32 ONE_CTA_LENGTH = 16384;
constexpr u32 MAX_CLUSTER = 16;
// counts (BINS), totals (BINS), then the stage.
constexpr u32 HEAD_WORDS = 2 * BINS;

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
__device__ __forceinline__ void cluster_barrier() {
  __syncwarp();  // .aligned asks for a converged warp
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
__device__ __forceinline__ u32 peer_address(const u32* mine, u32 rank) {
  u32 local = (u32)__cvta_generic_to_shared(mine), remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
  return remote;
}
__device__ __forceinline__ u32 read_peer(const u32* mine, u32 rank) {
  u32 value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];"
               : "=r"(value)
               : "r"(peer_address(mine, rank))
               : "memory");
  return value;
}
__device__ __forceinline__ void write_peer(const u32* mine, u32 rank, u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer_address(mine, rank)), "r"(value)
               : "memory");
}

// Larger score, larger key; every NaN gets the largest key of all.
__device__ __forceinline__ u32 order_key(float score) {
  if (score != score) return 0xffffffffu;
  const u32 bits = __float_as_uint(score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// One barrier for both ways of working: a CTA alone, or the cluster together.
__device__ __forceinline__ void barrier(bool together) {
  if (together)
    cluster_barrier();
  else
    __syncthreads();
}

struct Shared {
  u32 warp_sums[32];
  u32 bin, above, in_bin;
  u32 taken_above, taken_equal;
  u32 above_by_rank[MAX_CLUSTER], equal_by_rank[MAX_CLUSTER];
};

// The bin in which the running count from the top reaches `wanted`, and the count above it.
// totals: BINS counts. Each thread looks at two bins; results in s.bin, s.above and s.in_bin.
__device__ __forceinline__ void find_bin(const u32* totals, u32 wanted, Shared& s) {
  const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
  const u32 high = BINS - 1 - 2 * t;
  const u32 first = totals[high], second = totals[high - 1];
  u32 running = first + second;
  for (u32 step = 1; step < 32; step <<= 1) {
    const u32 other = __shfl_up_sync(~0u, running, step);
    if (lane >= step) running += other;
  }
  if (lane == 31) s.warp_sums[warp] = running;
  __syncthreads();
  const u32 sum = s.warp_sums[lane];
  u32 scan = sum;
  for (u32 step = 1; step < 32; step <<= 1) {
    const u32 other = __shfl_up_sync(~0u, scan, step);
    if (lane >= step) scan += other;
  }
  const u32 before = __shfl_sync(~0u, scan - sum, warp) + running - first - second;
  if (before < wanted && before + first >= wanted) {
    s.bin = high;
    s.above = before;
    s.in_bin = first;
  } else if (before + first < wanted && before + first + second >= wanted) {
    s.bin = high - 1;
    s.above = before + first;
    s.in_bin = second;
  }
  __syncthreads();
}

// Selects from one row. `peers` CTAs share it; `rank` of them is this one. Elements
// [begin, begin + count) of the row belong to this CTA.
__device__ void select(const float* row, int* out, u32 begin, u32 count, u32 k, u32 stage_size,
                       u32 peers, u32 rank, u32* words, Shared& s) {
  const u32 t = threadIdx.x;
  const bool together = peers > 1;
  const bool staged = count <= stage_size;
  u32* counts = words;
  u32* totals = words + BINS;
  u32* stage = words + HEAD_WORDS;
  if (staged) {
    for (u32 i = t; i < count; i += THREADS) stage[i] = order_key(row[begin + i]);
  }

  u32 prefix = 0, prefix_mask = 0, wanted = k;
#pragma unroll 1
  for (u32 pass = 0; pass < 3; ++pass) {
    const u32 shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const u32 digit_mask = pass == 2 ? 1023u : 2047u;
    for (u32 i = t; i < BINS; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (u32 i = t; i < count; i += THREADS) {
      const u32 key = staged ? stage[i] : order_key(row[begin + i]);
      if ((key & prefix_mask) == prefix) atomicAdd(&counts[(key >> shift) & digit_mask], 1u);
    }
    barrier(together);
    if (together) {
      const u32 share = (BINS + peers - 1) / peers;
      const u32 end = min(BINS, (rank + 1) * share);
      for (u32 i = rank * share + t; i < end; i += THREADS) {
        u32 sum = 0;
        for (u32 p = 0; p < peers; ++p) sum += read_peer(&counts[i], p);
        for (u32 p = 0; p < peers; ++p) write_peer(&totals[i], p, sum);
      }
      cluster_barrier();
    }
    find_bin(together ? totals : counts, wanted, s);
    prefix |= s.bin << shift;
    prefix_mask |= digit_mask << shift;
    wanted -= s.above;
  }

  // prefix is now the key of the k-th largest score; `wanted` scores equal to it are taken.
  const u32 pivot = prefix;
  if (t == 0) s.taken_above = s.taken_equal = 0;
  __syncthreads();
  u32 mine_above = 0, mine_equal = 0;
  for (u32 i = t; i < count; i += THREADS) {
    const u32 key = staged ? stage[i] : order_key(row[begin + i]);
    mine_above += key > pivot;
    mine_equal += key == pivot;
  }
  if (mine_above) atomicAdd(&s.taken_above, mine_above);
  if (mine_equal) atomicAdd(&s.taken_equal, mine_equal);
  __syncthreads();
  u32 above_before = 0, equal_before = 0;
  if (together) {
    if (t < peers) {
      write_peer(&s.above_by_rank[rank], t, s.taken_above);
      write_peer(&s.equal_by_rank[rank], t, s.taken_equal);
    }
    cluster_barrier();
    for (u32 p = 0; p < rank; ++p) {
      above_before += s.above_by_rank[p];
      equal_before += s.equal_by_rank[p];
    }
    // Nobody reads a peer's memory after this barrier, so a CTA may leave when it has written.
  }
  __syncthreads();
  if (t == 0) {
    s.taken_above = above_before;
    s.taken_equal = equal_before;
  }
  __syncthreads();
  const u32 equal_from = k - wanted;
  for (u32 i = t; i < count; i += THREADS) {
    const u32 key = staged ? stage[i] : order_key(row[begin + i]);
    if (key > pivot) {
      out[atomicAdd(&s.taken_above, 1u)] = (int)(begin + i);
    } else if (key == pivot) {
      const u32 place = atomicAdd(&s.taken_equal, 1u);
      if (place < wanted) out[equal_from + place] = (int)(begin + i);
    }
  }
}

extern "C" __global__ void CLUSTER_DIMS __launch_bounds__(1024, 1)
    cluster_topk(const float* logits, const int* lengths, int* out, u32* report, u32 rows,
                 u32 stride, u32 k, u32 stage_size) {
  extern __shared__ u32 words[];
  __shared__ Shared s;
  const u32 row = blockIdx.x, t = threadIdx.x;
  const u32 peers = cluster_size(), rank = cluster_rank();
  const int asked = lengths[row];
  const u32 length = asked < 0 ? 0 : min((u32)asked, stride);
  const u32 path = length <= k ? 1 : length <= ONE_CTA_LENGTH ? 2 : 3;
  const float* scores = logits + (u64)row * stride;
  int* chosen = out + (u64)row * k;
  if (t == 0) {
    u32* mine = report + ((u64)row * gridDim.y + blockIdx.y) * 4;
    mine[0] = peers;
    mine[1] = rank;
    mine[2] = sm_id();
    mine[3] = path;
  }
  if (path != 3 && rank != 0) return;
  if (path == 1) {
    for (u32 i = t; i < k; i += THREADS) chosen[i] = i < length ? (int)i : -1;
  } else if (path == 2 || peers == 1) {
    select(scores, chosen, 0, length, k, stage_size, 1, 0, words, s);
  } else {
    const u32 base = length / peers, extra = length % peers;
    const u32 begin = rank * base + min(rank, extra);
    select(scores, chosen, begin, base + (rank < extra), k, stage_size, peers, rank, words, s);
  }
}
