// SPDX-License-Identifier: Apache-2.0
//
// short_N, long_N, part_N with merge_1: the k best scores of each row, exact, in a fixed order.
//
// Contract (C++17, no headers, NVRTC -default-device, one source for every rung of the ladder)
//   short_N  grid (rows, 1, 1): a row of at most THREADS * N scores in the registers of one CTA,
//            wherever it starts; a longer one is repeated exactly (-DCHECKED=1: a trap)
//   long_N   grid (rows, CS, 1), cluster (1, CS, 1) given at launch; CS is 1, 2, 4, 8 or 16
//   part_N   grid (rows, PARTS, 1), no cluster, PARTS as CS: leaves candidates in `parts`
//   merge_1  grid (rows, 1, 1), after part_N on the same stream
//   block (THREADS, 1, 1), THREADS 512 or 1,024; N scores a thread in registers at once
//   dynamic shared memory: 4 * BINS + 8 * (room + cap) bytes
//   may be launched before what ran on the stream is done (programmatic stream serialization)
//
//   logits   [rows, columns] fp32, fp16 or bf16 (-DSCORE=0, 1, 2), any alignment; row_stride in
//            elements; -DSTRIDED=1 compiles the variant for a column stride other than 1
//   lengths  i32 [rows]; negative counts as 0, more than columns as columns
//   out      i32 [rows, k], out_stride in elements; indices of the k best, best first, equal scores
//            by index; a row of length <= k holds 0..length-1 unless SORTED is asked; then -1
//   paths    u32 [rows] or null: 1 trivial, 2 short, 3 candidates, 4 exact (what each row took),
//            and 16 more where its length was more than the columns
//   parts    rows x (256 + 8 * cap) bytes of part_N and merge_1
//   flags    NAN_LAST 1, SORTED 2; room >= k + CROWDED + 4 entries; cap >= 2 k candidates
//            and a power of two; log_cluster: log2 of CS or PARTS
//
// A score is ordered by a 32-bit key (-0 as +0, every NaN alike), a tie by the smaller index.
//
// How a row is selected (docs/topk.md has the measurements behind it):
// 1. Rows are cut into units of a warp's 16-byte loads, dealt out over the CTAs, so that trends along
//    the row fall on all alike. A thread keeps its first N scores in registers.
// 2. Bound: the m-th largest of the threads' maxima is a threshold T that at least m scores reach.
//    m is the CTA's share of k with a margin, so few scores pass T, and they go to one CTA's shared
//    memory (DSMEM). Histograms count log-scale bins below the maximum: any scale of scores will do.
// 3. The leader counts candidates above the largest T of all CTAs into bins, scans, scatters them
//    by bin and ranks each inside its bin: a sorted result.
// 4. Where fewer than k candidates lie above it, or a buffer is full, statistics did not hold (or
//    scores tie in masses): the whole cluster repeats the row exactly, by counting keys in the range
//    that is left and narrowing it, then by ranking the few that reach it, or by taking what ties in
//    order of index.
// Short rows skip step 2: every score in registers is a candidate.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

// Keeps what is rarely done out of the way: a launch fetches each instruction once, in order.
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#ifndef THREADS
#define THREADS 1024
#endif
#ifndef SCORE
#define SCORE 0
#endif
#ifndef STRIDED
#define STRIDED 0
#endif
#ifndef CHECKED  // 1: a row that was launched on a kernel that does not hold it ends in a trap.
#define CHECKED 0
#endif
#ifdef MARKS  // Clocks of thread 0 at each stage, in place of `paths` [rows, 32]
__shared__ unsigned int g_at[32];
#define MARK(i) do { if (threadIdx.x == 0) g_at[i] = (u32)clock64(); } while (0)
#else
#define MARK(i)
#endif

constexpr u32 WARPS = THREADS / 32;
constexpr u32 LOG_WARPS = WARPS == 32 ? 5 : 4;
constexpr u32 VEC = SCORE == 0 ? 4 : 8;  // scores in 16 bytes
constexpr u32 UNIT = 32 * VEC;
constexpr u32 GROUP = 4;                 // scores of the smallest group that has a maximum of its own
constexpr u32 BINS = 2048, BIN_BITS = 11, BINS_EACH = BINS / THREADS;
constexpr u32 LOG_SEGMENT = BIN_BITS - LOG_WARPS;  // a warp scans a segment of bins
constexpr u32 COARSE = 32;          // bins of the bound, in groups of as many
constexpr u32 BOUND_SHIFT = 17;     // 64 bins a binade, 16 binades below the maximum
// Bins of short rows, tried in turn: 256 a binade, 8 binades below the maximum; then all of equal
// width, for a cut among small or negative scores; then 4 a binade, all of them.
constexpr u32 FINE_SHIFT = 15, WHOLE_SHIFT = 21;
constexpr u32 CROWDED = 256;        // candidates in the last bin that are still ranked pair by pair
constexpr u32 MAX_CLUSTER = 16;
constexpr u32 NAN_KEY = 0xffffffffu, LOWEST_KEY = 0x007fffffu;  // the latter of -inf
constexpr u32 NOWHERE = 0x80000000u;                            // index of no score
constexpr float MARGIN = 4.0f;      // standard deviations that a CTA's share may be off
static_assert(WARPS >= MAX_CLUSTER, "a warp of the leader visits one part");
constexpr u64 DONE = 0;              // of a verdict, which else is a range of keys
[[maybe_unused]] constexpr u32 TOO_LONG = 16;  // added to a path: the length was more than the columns
constexpr u32 NAN_LAST = 1, SORTED = 2;

#if SCORE == 0
typedef float Score;
#else
typedef u16 Score;
#endif

__device__ __forceinline__ void cluster_arrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Only says that this CTA runs; a full arrival is a fence of the whole device.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ u32 peer(const void* mine, u32 rank) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(shared_address(mine)), "r"(rank));
  return remote;
}
__device__ __forceinline__ void peer_write(u32 at, u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void peer_write(u32 at, u64 value) {
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(at), "l"(value) : "memory");
}
// Stores into a peer's memory that count their bytes on a barrier there: whoever waits for that
// barrier sees them, so that nobody needs a fence or a barrier of the cluster.
__device__ __forceinline__ void peer_send(u32 at, u64 value, u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(at),
               "l"(value), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void peer_send(u32 at, u32 value, u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at),
               "r"(value), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void peer_send(u32 at, uint4 v, u32 barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::
          "r"(at),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
      : "memory");
}
// Arrives at a peer's barrier and says how many bytes come with it.
__device__ __forceinline__ void peer_announce(u32 barrier, u32 bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void barrier_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
// Arrives at this CTA's own barrier, which then waits for `bytes`. Done when it returns, unlike what
// goes through the cluster: a CTA must not leave while something is on its way to it, not even from
// itself.
__device__ __forceinline__ void barrier_expect(u64* barrier, u32 bytes) {
  asm volatile(
      "{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(
          shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* barrier, u32 parity = 0) {
  asm volatile(
      "{\n\t.reg .pred done;\n"
      "again:\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(shared_address(barrier)), "r"(parity)
      : "memory");
}
__device__ __forceinline__ u32 peer_take(u32 at, u32 value) {
  u32 old;
  asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(at), "r"(value)
               : "memory");
  return old;
}

// The larger one; NaN above all, and then the canonical one.
__device__ __forceinline__ float top(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
// Larger score, larger key. The addition makes -0 a +0 and every NaN the canonical 0x7fffffff.
__device__ __forceinline__ u32 order_key(float score) {
  const u32 bits = __float_as_uint(score + 0.0f);
  return bits ^ ((u32)((int)bits >> 31) | 0x80000000u);
}
__device__ __forceinline__ u32 order_key(float score, u32 flags) {
  const u32 key = order_key(score);
  return key == NAN_KEY && flags & NAN_LAST ? 1u : key;
}
__device__ __forceinline__ float of_key(u32 key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
__device__ __forceinline__ float lowest() { return __uint_as_float(0xff800000u); }
__device__ __forceinline__ float widen(u32 bits) {
#if SCORE == 1
  float wide;
  asm("{.reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h;}" : "=f"(wide) : "h"((u16)bits));
  return wide;
#else
  return __uint_as_float(bits << 16);
#endif
}
__device__ __forceinline__ float score_at(const Score* p) {
#if SCORE == 0
  return __ldg(p);
#else
  return widen(__ldg(p));
#endif
}
__device__ __forceinline__ u64 entry(u32 key, u32 index) { return ((u64)key << 32) | (u32)~index; }

// Nothing of global memory is touched before what ran on this stream is done: a launch may begin early.
__device__ __forceinline__ void depend() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

struct Shared {
  uint4 found;                         // of the last scan: bin, counts before it and up to its end
  u64 arrived, told;                   // barriers: all candidates are here; the verdict is
  u64 counted, summed;                 // barriers of a repeated row: counts to add up; their sums
  u32 peaks[MAX_CLUSTER];              // the largest key of each CTA
  u64 limits[MAX_CLUSTER];             // bound and maximum of each CTA
  u32 counts[MAX_CLUSTER][WARPS];      // candidates of each of its warps
  u32 warp_max[32], segments[32], coarse[COARSE], fine[COARSE * COARSE];
  u32 count, crowded;                  // candidates of this CTA; whether some part is too full
  u64 verdict;                         // of the leader: DONE, or the range to repeat the row in
  u32 peak;                            // of a repeated row: its largest key
  u32 taken, equal[MAX_CLUSTER];       // entries found; ties of each CTA
};

// What this CTA reads of a row: units rank, rank + peers, ... of `loadable` scores.
struct Slice {
  const Score* row;
  u32 loadable;           // scores that may be read
  u32 column_stride;
  u32 skew;               // scores between the 16-byte boundary below the row and its first one
  u32 peers, log_peers, rank;
  u32 per_warp, batches;  // units of a warp; batches of LOADS units
  u32 batch_step, load_step;  // units of a warp from one batch, and one load of it, to the next
  u32 unit_step, warp_step;

  template <u32 LOADS>
  __device__ __forceinline__ void cut(u32 extent, bool spread) {
    const u32 units = (extent + skew + UNIT - 1) / UNIT;
    loadable = extent;
    per_warp = (units + (WARPS << log_peers) - 1) >> (LOG_WARPS + log_peers);
    batches = (per_warp + LOADS - 1) / LOADS;
    batch_step = 1;
    load_step = batches;
    unit_step = spread ? 1 : WARPS;
    warp_step = spread ? per_warp : 1;
  }
  // The other way to deal a row out: whole runs, so that CTAs and warps stand in order of index.
  template <u32 LOADS>
  __device__ __forceinline__ void line_up(u32 extent) {
    cut<LOADS>(extent, true);
    rank *= WARPS * per_warp;  // of units
    log_peers = 0;
  }
  // The loads of a batch lie one after the other.
  template <u32 LOADS>
  __device__ __forceinline__ void side_by_side() {
    batch_step = LOADS;
    load_step = 1;
  }
  // Whether load j of a batch is one of this warp's.
  __device__ __forceinline__ bool holds(u32 batch, u32 j) const {
    return j * load_step + batch * batch_step < per_warp;
  }
};

// A thread's scores of one batch. Where there is no score it is -inf.
// WHOLE rows are held by one CTA in one batch; LOOSE ones too, and begin off a 16-byte boundary: they
// are read score by score, and need no more registers than others.
enum Layout { DEALT, WHOLE, LOOSE };
template <u32 LOADS, Layout LAYOUT = DEALT>
struct Batch {
  static constexpr u32 SCORES = LOADS * VEC;
  float score[SCORES];
  u32 begin, step;  // index of the first load, and from one load to the next

  __device__ __forceinline__ u32 index(u32 i) const {
    return LAYOUT == LOOSE ? begin + i * THREADS : begin + i / VEC * step + i % VEC;
  }

  __device__ __forceinline__ void load(const Slice& slice, u32 batch) {
    const u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (LAYOUT != DEALT) {
      begin = LAYOUT == LOOSE ? threadIdx.x : threadIdx.x * VEC;
      step = THREADS * VEC;
    } else {
      const u32 unit = batch * slice.batch_step * slice.unit_step + warp * slice.warp_step;
      begin = ((unit << slice.log_peers) + slice.rank) * UNIT + lane * VEC - slice.skew;
      step = (slice.load_step * slice.unit_step << slice.log_peers) * UNIT;
    }
    auto holds = [&](u32 j) { return LAYOUT != DEALT || slice.holds(batch, j); };
#if STRIDED
#pragma unroll
    for (u32 i = 0; i < SCORES; ++i)
      score[i] = holds(i / VEC) && index(i) < slice.loadable
                     ? score_at(slice.row + (u64)index(i) * slice.column_stride)
                     : lowest();
#else
    if (LAYOUT == LOOSE) {
#pragma unroll
      for (u32 i = 0; i < SCORES; ++i)
        score[i] = index(i) < slice.loadable ? score_at(slice.row + index(i)) : lowest();
      return;
    }
    uint4 raw[LOADS];
    constexpr u32 LOW = SCORE == 0 ? 0xff800000u : SCORE == 1 ? 0xfc00fc00u : 0xff80ff80u;
    // Loads that begin below it lie whole inside the row.
    const u32 inside = slice.loadable < VEC ? 0 : slice.loadable - VEC + 1;
#pragma unroll
    for (u32 j = 0; j < LOADS; ++j) {
      raw[j] = make_uint4(LOW, LOW, LOW, LOW);
      if (holds(j) && begin + j * step < inside)
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(raw[j].x), "=r"(raw[j].y), "=r"(raw[j].z), "=r"(raw[j].w)
                     : "l"(slice.row + (begin + j * step)));
    }
#pragma unroll
    for (u32 j = 0; j < LOADS; ++j) {
      const u32 words[4] = {raw[j].x, raw[j].y, raw[j].z, raw[j].w};
#pragma unroll
      for (u32 c = 0; c < VEC; ++c)
        score[j * VEC + c] = SCORE == 0 ? __uint_as_float(words[c % 4])
                                        : widen(words[c / 2 % 4] >> (c % 2 * 16) & 0xffffu);
    }
    // Loads that lie partly outside: few threads have one.
    if (UNLIKELY((LAYOUT == DEALT && slice.skew != 0) || slice.loadable % VEC != 0)) {
#pragma unroll
      for (u32 j = 0; j < LOADS; ++j) {
        const u32 first = begin + j * step;
        if (holds(j) && first >= inside && (int)first < (int)slice.loadable) {
#pragma unroll
          for (u32 c = 0; c < VEC; ++c)
            if (first + c < slice.loadable) score[j * VEC + c] = score_at(slice.row + (first + c));
        }
      }
    }
#endif
  }
  // The largest of a group of four scores.
  __device__ __forceinline__ float best(u32 group) const {
    float found = score[group * GROUP];
#pragma unroll
    for (u32 c = 1; c < GROUP; ++c) found = top(found, score[group * GROUP + c]);
    return found;
  }
  __device__ __forceinline__ float best() const {
    float found = best(0);
#pragma unroll
    for (u32 group = 1; group < SCORES / GROUP; ++group) found = top(found, best(group));
    return found;
  }
  // Score i by a tree of choices: registers have no index.
  __device__ __forceinline__ float pick(u32 i) const {
    float left[SCORES];
#pragma unroll
    for (u32 n = 0; n < SCORES; ++n) left[n] = score[n];
#pragma unroll
    for (u32 half = 1; half < SCORES; half <<= 1) {
#pragma unroll
      for (u32 n = 0; n < SCORES; n += 2 * half)
        left[n] = i & half ? left[n + half] : left[n];
    }
    return left[0];
  }
};

__device__ __forceinline__ u32 warp_scan(u32 value) {
  const u32 lane = threadIdx.x & 31;
#pragma unroll
  for (u32 step = 1; step < 32; step <<= 1) {
    const u32 other = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// Takes a number under a predicate: after a branch each would be waited for in turn.
__device__ __forceinline__ u32 take_if(bool wanted, u32* counter) {
  u32 number = NOWHERE;
  asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; @p atom.shared.add.u32 %0, [%2], 1;}"
               : "+r"(number)
               : "r"((u32)wanted), "r"(shared_address(counter))
               : "memory");
  return number;
}

// Counts one of a bin that `scan<true>` will see.
__device__ __forceinline__ void count_bin(u32* bins, u32 bin, Shared& s) {
  atomicAdd(&bins[bin], 1u);
  atomicAdd(&s.segments[bin >> LOG_SEGMENT], 1u);
}

// Turns BINS counts into offsets: bins[i] becomes how many lie in bins before i. s.found tells the bin
// in which the running count reaches `wanted`, if it does. SEGMENTS says that s.segments holds the sum
// of each warp's bins; else they are added up here. Ends synced.
template <bool SEGMENTS>
__device__ __forceinline__ void scan(u32* bins, u32 wanted, Shared& s) {
  const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
  u32 count[BINS_EACH], sum = 0;
#pragma unroll
  for (u32 i = 0; i < BINS_EACH; ++i) sum += count[i] = bins[t * BINS_EACH + i];
  const u32 upto = warp_scan(sum);
  if (!SEGMENTS) {
    if (lane == 31) s.segments[warp] = upto;
    __syncthreads();
  }
  u32 before = __reduce_add_sync(~0u, lane < warp ? s.segments[lane] : 0) + upto - sum;
  const bool here = before < wanted && before + sum >= wanted;
  u32 offset = before;
#pragma unroll
  for (u32 i = 0; i < BINS_EACH; ++i) {
    bins[t * BINS_EACH + i] = offset;
    offset += count[i];
  }
  if (here) {
#pragma unroll
    for (u32 i = 0; i < BINS_EACH; ++i) {
      if (before < wanted && before + count[i] >= wanted)
        s.found = make_uint4(t * BINS_EACH + i, before, before + count[i], 0);
      before += count[i];
    }
  }
  __syncthreads();
}

__device__ __forceinline__ void clear(u32* bins, Shared& s) {
#pragma unroll
  for (u32 i = 0; i < BINS_EACH; ++i) bins[i * THREADS + threadIdx.x] = 0;
  if (threadIdx.x < 32) s.segments[threadIdx.x] = 0;
  if (threadIdx.x == 0) s.found.z = ~0u;
}

// Ranks candidates, counted into bins of keys by `bin_of`, and writes the k best. `scatter` gives
// those up to a bin to `put(bin, entry)`. Returns whether the counts allow it; nothing is written
// where not. `told` hears the answer as soon as it is known. Bins are counted and synced; CROWDS says
// that s.crowded may be set.
template <bool CROWDS, class BinOf, class Scatter, class Told>
__device__ __forceinline__ bool finish(BinOf bin_of, Scatter scatter, Told told, u32 k, u32 room,
                                       u32* bins, u64* sorted, int* out, Shared& s) {
  scan<true>(bins, k, s);
  MARK(14);
  const uint4 found = s.found;
  const u32 end = found.z;
  const bool good = end <= room - 4 && end - found.y <= CROWDED && !(CROWDS && s.crowded);
  told(good);
  if (UNLIKELY(!good)) return false;
  MARK(15);
  if (threadIdx.x < 4) sorted[end + threadIdx.x] = 0;
  scatter(found.x);
  MARK(16);
  __syncthreads();
  MARK(17);
  // A bin's counter stands at its end now, and that of the bin before at its start. What lies before a
  // bin is larger than all in it, what lies behind it smaller: reading may begin and end on 32 bytes.
  auto place = [&](u32 i) {
    const u64 mine = sorted[i];
    const u32 b = bin_of((u32)(mine >> 32));
    const u32 to = bins[b];
    u32 from = b ? bins[b - 1] & ~3u : 0, rank = from;
#pragma unroll 1
    for (; from < to; from += 4) {
      const ulonglong2 one = *(const ulonglong2*)&sorted[from];
      const ulonglong2 two = *(const ulonglong2*)&sorted[from + 2];
      rank += (one.x > mine) + (one.y > mine) + (two.x > mine) + (two.y > mine);
    }
    if (rank < k) out[rank] = (int)~(u32)mine;
  };
  // What lies behind k is left to the last warps, which then have no second round alone.
  for (u32 i = threadIdx.x; i < k; i += THREADS) place(i);
  for (u32 i = k + THREADS - 1 - threadIdx.x; i < end; i += THREADS) place(i);
  MARK(18);
  return true;
}

// The range of keys to repeat a row in: the k-th best reaches `low`; `most` is the largest key of what
// was loaded first, which a row of several batches may exceed.
__device__ __forceinline__ u64 range_of(u32 most, u32 low) { return (u64)most << 32 | low; }
// The same after a count into bins, of keys down from `most` and none below `floor`: what was counted
// reached k in bin `found`, if in any.
__device__ __forceinline__ u64 range_of(u32 most, u32 floor, uint4 found, u32 shift) {
  if (found.z == ~0u) return range_of(most, 0);
  const u32 below = ((found.x + 1) << shift) - 1;
  return range_of(most, most - floor < below ? floor : most - below);
}

// Sorts `count` entries, the largest first, in memory for the next power of two.
__device__ __forceinline__ void sort(u64* entries, u32 count) {
  const u32 t = threadIdx.x;
  u32 size = 2;
  while (size < count) size <<= 1;
#pragma unroll 1
  for (u32 i = count + t; i < size; i += THREADS) entries[i] = 0;
  __syncthreads();
#pragma unroll 1
  for (u32 run = 2; run <= size; run <<= 1) {
#pragma unroll 1
    for (u32 step = run >> 1; step > 0; step >>= 1) {
#pragma unroll 1
      for (u32 i = t; i < size / 2; i += THREADS) {
        const u32 low = 2 * i - (i & (step - 1));
        const u64 a = entries[low], b = entries[low + step];
        if ((a < b) == ((low & run) == 0)) {
          entries[low] = b;
          entries[low + step] = a;
        }
      }
      // Steps of at most 32 stay among the 64 entries of a warp.
      if (step > 32 || (step == 1 && run > 32))
        __syncthreads();
      else
        __syncwarp();
    }
  }
  __syncthreads();
}

// Selects in a range of keys, over the whole cluster. Each pass counts what lies in the range into
// bins and leaves the bin of the k-th best; the largest key has a bin of its own, since rows tie there.
// Once few entries reach it the leader ranks them; a single key is taken in order of index, which is
// that of the CTAs, their warps and their loads. Not inline: what is rarely run would cost the rest
// registers.
template <u32 LOADS>
__device__ __noinline__ void exact(Slice slice, u32 length, u32 k, u32 flags, u64 range, u32* bins,
                                   u64* sorted, u32 room, u64* found, u32 cap, int* out, Shared& s) {
  const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
  const u32 peers = slice.peers, rank = slice.rank, log_peers = slice.log_peers;
  const u32 few = cap / 2;
  Slice ordered = slice;
  ordered.template line_up<LOADS>(length);
  auto each = [&](auto visit) {
#pragma unroll 1
    for (u32 nth = 0; nth < ordered.batches; ++nth) {
      Batch<LOADS> batch;
      batch.load(ordered, nth);
      // Whether every score that the warp holds is one of the row's.
      const u32 last = batch.index((LOADS - 1) * VEC);
      if (__all_sync(~0u, ordered.holds(nth, LOADS - 1) && (int)batch.begin >= 0 &&
                              last + VEC <= length))
        visit(batch, [](u32) { return true; });
      else
        visit(batch, [&](u32 i) {
          return ordered.holds(nth, i / VEC) && batch.index(i) < length;
        });
    }
  };
  u32 most = (u32)(range >> 32), low = (u32)range, end = ~0u, wanted = k, reach, peak = 0;
  if (t == 0) s.taken = s.peak = 0;
#pragma unroll 1
  for (u32 pass = 0;; ++pass) {
    const u32 width = 32 - __clz(most - low);
    u32 shift = width > BIN_BITS ? width - BIN_BITS : 0;
    if (most != low && (most - low - 1) >> shift > BINS - 2) ++shift;
    clear(bins, s);
    __syncthreads();
    u32 largest_here = 0;
    each([&](auto& batch, auto valid) {
#pragma unroll
      for (u32 i = 0; i < LOADS * VEC; ++i) {
        const u32 key = order_key(batch.score[i], flags);
        if (key - low <= end - low && valid(i)) {
          const u32 below = most - min(key, most);
          atomicAdd(&bins[below ? ((below - 1) >> shift) + 1 : 0], 1u);
          largest_here = max(largest_here, key);
        }
      }
    });
    if (pass == 0) {
      largest_here = __reduce_max_sync(~0u, largest_here);
      if (lane == 0) atomicMax(&s.peak, largest_here);
    }
    __syncthreads();
    if (peers > 1) {
      // Each rank adds up its share of the bins, four of one peer a thread, and hands the sums to all.
      const u32 log_share = BIN_BITS - 2 - log_peers, parity = pass & 1;
      uint4* const fours = (uint4*)bins;
      uint4* const counts = (uint4*)(found + (room & 1));  // On 16 bytes.
      const u32 other = t >> log_share, nth = t & ((1u << log_share) - 1);
      const u32 here = rank << log_share | nth;
      if (t == 0) {
        barrier_expect(&s.counted, BINS * 4 + (pass == 0 ? 4 * peers : 0));
        barrier_expect(&s.summed, BINS * 4);
      }
      if (t < BINS / 4) peer_send(peer(&counts[here], other), fours[t], peer(&s.counted, other));
      if (pass == 0 && t < peers) peer_send(peer(&s.peaks[rank], t), s.peak, peer(&s.counted, t));
      barrier_wait(&s.counted, parity);
      if (t < BINS / 4) {
        uint4 sum = counts[nth];
#pragma unroll 1
        for (u32 one = 1; one < peers; ++one) {
          const uint4 more = counts[one << log_share | nth];
          sum.x += more.x;
          sum.y += more.y;
          sum.z += more.z;
          sum.w += more.w;
        }
        peer_send(peer(&fours[here], other), sum, peer(&s.summed, other));
      }
      barrier_wait(&s.summed, parity);
    }
    if (pass == 0)
      peak = peers > 1 ? __reduce_max_sync(~0u, s.peaks[lane & (peers - 1)]) : s.peak;
    scan<false>(bins, wanted, s);
    const uint4 bin = s.found;
    reach = k - wanted + bin.z;  // How many reach the end of the bin.
    wanted -= bin.y;
    if (bin.x == 0) {
      low = most;
      if (pass == 0) most = peak;
    } else {
      most -= 1 + ((bin.x - 1) << shift);
      low = most - low < (1u << shift) ? low : most - (1u << shift) + 1;
    }
    end = most;
    __syncthreads();
    // What lies above the first batch's largest is not one key, as a rule.
    const bool open = pass == 0 && bin.x == 0;
    if (most == low || (reach <= few && (open || bin.z - bin.y <= CROWDED))) break;
  }
  // Two ways out: whatever reaches `low`, or what is above it and then the first of what ties.
  const bool ties = most == low;
  const u32 at = peer(found, 0), taken = peer(&s.taken, 0);
  u32 equal = 0;
  each([&](auto& batch, auto valid) {
    u32 passing = 0;
#pragma unroll
    for (u32 i = 0; i < LOADS * VEC; ++i) {
      const u32 key = order_key(batch.score[i], flags);
      if ((ties ? key > most : key >= low) && valid(i)) passing |= 1u << i;
      if (key == most && valid(i)) ++equal;
    }
    if (!__ballot_sync(~0u, passing)) return;
    const u32 count = __popc(passing), upto = warp_scan(count);
    u32 base = 0;
    if (lane == 31) base = peer_take(taken, upto);
    u32 to = at + (__shfl_sync(~0u, base, 31) + upto - count) * 8;
#pragma unroll
    for (u32 i = 0; i < LOADS * VEC; ++i) {
      if (passing >> i & 1) {
        peer_write(to, entry(order_key(batch.score[i], flags), batch.index(i)));
        to += 8;
      }
    }
  });
  if (ties) {
    equal = __reduce_add_sync(~0u, equal);
    if (lane == 0) s.segments[warp] = equal;
    __syncthreads();
    const u32 own = __reduce_add_sync(~0u, lane < WARPS ? s.segments[lane] : 0);
    if (t < peers) peer_write(peer(&s.equal[rank], t), own);
  }
  if (peers > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  if (ties) {
    u32 before = __reduce_add_sync(~0u, (lane < rank ? s.equal[lane & (MAX_CLUSTER - 1)] : 0) +
                                            (lane < warp ? s.segments[lane] : 0));
    // Loads one after the other, so that what a warp meets is in order.
    ordered.side_by_side<LOADS>();
#pragma unroll 1
    for (u32 nth = 0; equal && before < wanted && nth < ordered.batches; ++nth) {
      Batch<LOADS> batch;
      batch.load(ordered, nth);
#pragma unroll
      for (u32 j = 0; j < LOADS; ++j) {
        u32 same = 0;
#pragma unroll
        for (u32 i = 0; i < VEC; ++i)
          if (order_key(batch.score[j * VEC + i], flags) == most && ordered.holds(nth, j) &&
              batch.index(j * VEC + i) < length)
            same |= 1u << i;
        if (!__ballot_sync(~0u, same)) continue;
        const u32 count = __popc(same), upto = warp_scan(count);
        u32 place = before + upto - count;
#pragma unroll 1
        for (; same && place < wanted; same &= same - 1)
          out[k - wanted + place++] = (int)(batch.index(j * VEC) + __ffs(same) - 1);
        before += __shfl_sync(~0u, upto, 31);
      }
    }
  }
  const u32 count = ties ? k - wanted : reach;
  if (rank != 0 || count == 0) return;
  // Half of the bins for what is above the range, the other half for the range itself.
  constexpr u32 HALF = BINS / 2;
  auto shift_of = [](u32 span) {
    const u32 width = 32 - __clz(span);
    return width > BIN_BITS - 1 ? width - (BIN_BITS - 1) : 0;
  };
  const u32 above = shift_of(peak - most), inside = shift_of(most - low);
  auto bin_of = [&](u32 key) {
    return key > most ? (peak - key) >> above : HALF + ((most - key) >> inside);
  };
  __syncthreads();
  clear(bins, s);
  if (t == 0) s.crowded = 0;
  __syncthreads();
  // Some at a time, so that they wait together.
  constexpr u32 SOME = 2;
  auto some = [&](auto visit) {
#pragma unroll 1
    for (u32 first = t; first < count; first += SOME * THREADS) {
      u64 e[SOME];
      u32 got[SOME];
#pragma unroll
      for (u32 n = 0; n < SOME; ++n) e[n] = found[min(first + n * THREADS, count - 1)];
#pragma unroll
      for (u32 n = 0; n < SOME; ++n) got[n] = visit(e[n], first + n * THREADS < count);
#pragma unroll
      for (u32 n = 0; n < SOME; ++n)
        if (got[n] != NOWHERE && first + n * THREADS < count) sorted[got[n]] = e[n];
    }
  };
  bool crowd = false;
  some([&](u64 e, bool valid) {
    const u32 b = bin_of((u32)(e >> 32));
    const u32 before = take_if(valid, &bins[b]);
    if (valid) atomicAdd(&s.segments[b >> LOG_SEGMENT], 1u);
    crowd |= valid && before >= 2 * CROWDED;
    return NOWHERE;
  });
  if (crowd) s.crowded = 1;
  __syncthreads();
  auto scatter = [&](u32 last) {
    some([&](u64 e, bool valid) {
      const u32 b = bin_of((u32)(e >> 32));
      return take_if(valid && b <= last, &bins[b]);
    });
  };
  const u32 best = min(count, k);
  if (finish<true>(bin_of, scatter, [](bool) {}, best, room, bins, sorted, out, s)) {
    return;
  }
  __syncthreads();
  sort(found, count);
#pragma unroll 1
  for (u32 i = t; i < best; i += THREADS) out[i] = (int)~(u32)found[i];
}

// The largest key of the CTA. Ends synced.
__device__ __forceinline__ u32 largest(u32 key, Shared& s) {
  const u32 lane = threadIdx.x & 31;
  const u32 warp_best = __reduce_max_sync(~0u, key);
  if (lane == 0) s.warp_max[threadIdx.x >> 5] = warp_best;
  __syncthreads();
  return __reduce_max_sync(~0u, lane < WARPS ? s.warp_max[lane] : 0);
}

// A key that at least m of the batch's groups of scores reach; a group is what a thread holds, or
// four scores of it where m is large. The bins of the bound are clear and synced.
template <u32 LOADS>
__device__ __forceinline__ u32 bound(const Batch<LOADS>& batch, float best, u32 m, u32 most,
                                     Shared& s) {
  auto count = [&](float score) {
    const u32 below = (most - order_key(score)) >> BOUND_SHIFT;
    if (below < COARSE * COARSE) {
      atomicAdd(&s.fine[below], 1u);
      atomicAdd(&s.coarse[below / COARSE], 1u);
    }
  };
  constexpr u32 GROUPS = Batch<LOADS>::SCORES / GROUP;
  if (GROUPS > 1 && m * 2 > THREADS) {
#pragma unroll
    for (u32 group = 0; group < GROUPS; ++group) count(batch.best(group));
  } else {
    count(best);
  }
  MARK(4);
  __syncthreads();
  MARK(5);
  // Every warp finds the bin for itself: two scans of a warp cost less than barriers.
  const u32 lane = threadIdx.x & 31;
  const u32 groups = s.coarse[lane], upto = warp_scan(groups);
  const u32 reached = __ballot_sync(~0u, upto >= m);
  if (UNLIKELY(reached == 0)) return LOWEST_KEY;  // Fewer groups than m: everything passes.
  const u32 group = __ffs(reached) - 1;
  const u32 before = __shfl_sync(~0u, upto - groups, group);
  const u32 within = warp_scan(s.fine[group * COARSE + lane]);
  const u32 bin = group * COARSE + __ffs(__ballot_sync(~0u, before + within >= m)) - 1;
  MARK(6);
  const u32 reach = (bin + 1) << BOUND_SHIFT;
  return most < reach + LOWEST_KEY ? LOWEST_KEY : most - reach + 1;
}

// Hands every score of the slice whose key reaches `floor` (at least LOWEST_KEY) to
// `put(position, entry)`, up to `limit` positions, and returns how many this thread had. Positions are
// dense in the CTA.
template <u32 LOADS, class Put>
__device__ __forceinline__ u32 collect(Batch<LOADS>& batch, const Slice& slice, float best,
                                       u32 floor, u32 limit, u32 flags, Shared& s, Put put) {
  constexpr u32 SCORES = LOADS * VEC;
  const u32 lane = threadIdx.x & 31;
  const float low = of_key(floor);
  u32 sent = 0;
#pragma unroll 1
  for (u32 nth = 0;;) {
    Batch<LOADS> next;
    const bool more = nth + 1 < slice.batches;
    if (more) next.load(slice, nth + 1);
    const u32 lanes = __ballot_sync(~0u, !(best < low));
    if (lanes) {
      u32 passing = 0;
#pragma unroll
      for (u32 i = 0; i < SCORES; ++i)
        if (!(batch.score[i] < low)) passing |= 1u << i;
      if (UNLIKELY(floor == LOWEST_KEY || flags & NAN_LAST)) {
#pragma unroll
        for (u32 i = 0; i < SCORES; ++i)
          if (!slice.holds(nth, i / VEC) || batch.index(i) >= slice.loadable ||
              (flags & NAN_LAST && batch.score[i] != batch.score[i]))
            passing &= ~(1u << i);
      }
      const u32 count = __popc(passing);
      sent += count;
      u32 position;
      if (__popc(lanes) <= 8) {
        position = count ? atomicAdd(&s.count, count) : 0;
      } else {
        const u32 upto = warp_scan(count);
        u32 base = 0;
        if (lane == 31) base = atomicAdd(&s.count, upto);
        position = __shfl_sync(~0u, base, 31) + upto - count;
      }
#pragma unroll 1
      for (; passing && position < limit; passing &= passing - 1) {
        const u32 i = __ffs(passing) - 1;
        put(position++, entry(order_key(batch.pick(i)), batch.index(i)));
      }
    }
    if (!more) return sent;
    batch = next;
    best = batch.best();
    ++nth;
  }
}

// Dynamic shared memory: bins, `room` sorted entries, `cap` candidates.
extern __shared__ __align__(16) u64 memory[];

// A part of a row that CTAs without a cluster hand on: its limits and how many candidates follow.
struct Part {
  u64 limits;
  u32 count, unused;
};

struct Task {
  const Score* logits;
  const int* lengths;
  int* out;
  u32* paths;
  u64 row_stride, out_stride;
  u32 columns, column_stride, k, flags, room, cap, log_cluster;
  u64* parts;

  __device__ __forceinline__ int* chosen() const { return out + blockIdx.x * out_stride; }
  __device__ __forceinline__ Part* parts_of() const {
    return (Part*)(parts + (u64)blockIdx.x * (MAX_CLUSTER * sizeof(Part) / 8 + cap));
  }
  __device__ __forceinline__ int asked() const {
    int value;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(lengths + blockIdx.x));
    return value;
  }
  __device__ __forceinline__ u32 length(int asked) const {
    return min((u32)max(asked, 0), columns);
  }
  __device__ __forceinline__ bool trivial(u32 length) const {
    return length <= k && (!(flags & SORTED) || length == 0);
  }
  __device__ __forceinline__ void took(u32 path) const {
#ifdef MARKS
    if (threadIdx.x < 20 && paths) paths[blockIdx.x * 32 + threadIdx.x] = g_at[threadIdx.x];
#else
    if (threadIdx.x == 0 && paths)
      paths[blockIdx.x] = path + ((int)columns < lengths[blockIdx.x] ? TOO_LONG : 0);
#endif
  }
  // A row of at most k scores: all of them, in order of index.
  __device__ __forceinline__ void take_all(u32 length) const {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < k; i += THREADS) chosen()[i] = i < length ? (int)i : -1;
    took(1);
  }
  __device__ __forceinline__ void fill(u32 from) const {
#pragma unroll 1
    for (u32 i = from + threadIdx.x; i < k; i += THREADS) chosen()[i] = -1;
  }
  __device__ __forceinline__ u32 skew() const {
    return (u32)((u64)(logits + blockIdx.x * row_stride) & 15) / sizeof(Score);
  }
  __device__ __forceinline__ Slice slice(u32 log_peers, u32 rank) const {
    Slice made;
    made.row = logits + blockIdx.x * row_stride;
    made.column_stride = column_stride;
    made.skew = STRIDED ? 0 : skew();
    made.log_peers = log_peers;
    made.peers = 1u << log_peers;
    made.rank = rank;
    return made;
  }
};

// Rows that fit into the registers of one CTA: every score is a candidate.
template <u32 LOADS, Layout LAYOUT>
__device__ __forceinline__ void select_short(const Task& task, Shared& s) {
  u32* bins = (u32*)memory;
  u64* sorted = memory + BINS / 2;
  MARK(0);
  depend();
  // The row is loaded before its length is known.
  const int asked = task.lengths[blockIdx.x];
  Slice slice = task.slice(0, 0);
  slice.loadable = task.columns;
  Batch<LOADS, LAYOUT> batch;
  batch.load(slice, 0);
  clear(bins, s);
  if (threadIdx.x == 0) s.peak = 0;
  const u32 length = task.length(asked), wanted = min(task.k, length);
  if (UNLIKELY(task.trivial(length))) return task.take_all(length);
  if (UNLIKELY(length < task.columns)) {
    slice.loadable = length;
#pragma unroll
    for (u32 i = 0; i < LOADS * VEC; ++i)
      if (batch.index(i) >= length) batch.score[i] = lowest();
  }
  MARK(1);
  const float best = batch.best();
  MARK(2);
  const u32 most = largest(order_key(best), s);
  MARK(3);
  u32 key[LOADS * VEC];
#pragma unroll
  for (u32 i = 0; i < LOADS * VEC; ++i) key[i] = order_key(batch.score[i]);
  auto attempt = [&](auto bin_of, u32 floor) {
#pragma unroll
    for (u32 i = 0; i < LOADS * VEC; ++i)
      if (key[i] >= floor) count_bin(bins, bin_of(key[i]), s);
    MARK(12);
    __syncthreads();
    MARK(13);
    auto scatter = [&](u32 last) {
      u32 place[LOADS * VEC];
#pragma unroll
      for (u32 i = 0; i < LOADS * VEC; ++i) {
        const u32 b = bin_of(key[i]);
        place[i] = take_if(b <= last && key[i] >= floor, &bins[b]);
      }
#pragma unroll
      for (u32 i = 0; i < LOADS * VEC; ++i)
        if (place[i] != NOWHERE) sorted[place[i]] = entry(key[i], batch.index(i));
    };
    return finish<false>(bin_of, scatter, [](bool) {}, wanted, task.room, bins, sorted,
                         task.chosen(), s);
  };
  const u32 reach = BINS << FINE_SHIFT, bottom = LOWEST_KEY + 1;
  auto fine = [&](u32 key) { return (most - key) >> FINE_SHIFT; };
  u32 path = 2;
  // The host never asks it of a longer row; none is ever cut.
  const bool beyond = length > THREADS * LOADS * VEC;
#if CHECKED
  if (beyond) asm volatile("trap;");
#endif
  const bool nan_last = beyond || (task.flags & NAN_LAST && most == NAN_KEY);
  // A cut that lies deep among the scores is beyond the fine bins, as a rule.
  const bool deep = wanted * 3 > length;
  if (UNLIKELY(nan_last || deep) ||
      UNLIKELY(!attempt(fine, most - bottom < reach ? bottom : most - reach + 1))) {
    u64 range = nan_last || deep ? range_of(beyond ? NAN_KEY : most, 0)
                                 : range_of(most, 0, s.found, FINE_SHIFT);
    bool done = false;
    // Where a fine bin was reached it was too full, and other bins are of no use.
    if (!nan_last && (deep || s.found.z == ~0u)) {
      u32 least = NAN_KEY;
#pragma unroll
      for (u32 i = 0; i < LOADS * VEC; ++i)
        if (key[i] >= bottom) least = min(least, key[i]);
      __syncthreads();
      const float highest = of_key(most), lowest = of_key(~largest(~least, s));
      const float scale = (float)(BINS - 1) / (highest - lowest);
#pragma unroll 1
      for (u32 linear = 1; !done && linear < 2; --linear) {
        // No contraction: a key has the same bin everywhere. What is no number is bin 0.
        auto bin_of = [&](u32 key) {
          return linear ? min((u32)__fmul_rn(__fsub_rn(highest, of_key(key)), scale), BINS - 1)
                        : (most - key) >> WHOLE_SHIFT;
        };
        if (!deep || !linear) {
          clear(bins, s);
          __syncthreads();
        }
        done = attempt(bin_of, bottom);
        if (!linear) range = range_of(most, 0, s.found, WHOLE_SHIFT);
        __syncthreads();
      }
    }
    if (!done) {
      __syncthreads();
      exact<LOADS>(slice, length, wanted, task.flags, range, bins, sorted, task.room,
                   sorted + task.room, task.cap, task.chosen(), s);
      path = 4;
    }
  }
  if (UNLIKELY(wanted < task.k)) task.fill(wanted);
  MARK(19);
  task.took(path);
}

template <u32 LOADS>
__device__ __forceinline__ void select_short(const Task& task) {
  __shared__ Shared s;
  if (!STRIDED && task.skew())
    select_short<LOADS, LOOSE>(task, s);
  else
    select_short<LOADS, WHOLE>(task, s);
}

// The last step on candidates: 1 << log_peers parts of `part` entries. Returns DONE, or where they did
// not suffice the range to repeat the row in; `told` hears it early.
template <class Told>
__device__ __forceinline__ u64 lead(const Task& task, const u64* candidates, u32 part,
                                     u32 log_peers, u32 highest, u32 most, u32 wanted, u32* bins,
                                     u64* sorted, Shared& s, Told told) {
  const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 width = 32 - __clz(most - highest);
  const u32 shift = width > BIN_BITS ? width - BIN_BITS : 0;
  auto bin_of = [&](u32 key) { return (most - min(key, most)) >> shift; };
  // A team of warps visits each part; the first two candidates stay in registers.
  const u32 log_team = LOG_WARPS - log_peers, team = 32u << log_team;
  const u32 part_of = warp >> log_team, nth = (warp & ((1u << log_team) - 1)) * 32 + lane;
  const u64* mine = candidates + part_of * part;
  u32 count = s.count;
  if (log_peers) count = __reduce_add_sync(~0u, lane < WARPS ? s.counts[part_of][lane] : 0);
  if (UNLIKELY(count > part)) {
    s.crowded = 1;
    // Those that are here still bound the k-th best; with NaN last not all of them are.
    count = task.flags & NAN_LAST ? 0 : part;
  }
  u64 kept[2];
  auto read = [&](u32 i) { return nth + i * team < count ? mine[nth + i * team] : 0; };
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    kept[i] = read(i);
    const u32 key = (u32)(kept[i] >> 32);
    if (key >= highest) count_bin(bins, bin_of(key), s);
  }
#pragma unroll 1
  for (u32 from = 2; nth + from * team < count; from += 4) {
    u64 more[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) more[i] = read(from + i);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 key = (u32)(more[i] >> 32);
      if (key >= highest) count_bin(bins, bin_of(key), s);
    }
  }
  MARK(12);
  __syncthreads();
  MARK(13);
  auto scatter = [&](u32 last) {
    u32 place[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 key = (u32)(kept[i] >> 32), b = bin_of(key);
      place[i] = take_if(b <= last && key >= highest, &bins[b]);
    }
#pragma unroll
    for (u32 i = 0; i < 2; ++i)
      if (place[i] != NOWHERE) sorted[place[i]] = kept[i];
#pragma unroll 1
    for (u32 from = 2; nth + from * team < count; from += 4) {
      u64 more[4];
      u32 place[4];
#pragma unroll
      for (u32 i = 0; i < 4; ++i) more[i] = read(from + i);
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const u32 key = (u32)(more[i] >> 32), b = bin_of(key);
        place[i] = take_if(b <= last && key >= highest, &bins[b]);
      }
#pragma unroll
      for (u32 i = 0; i < 4; ++i)
        if (place[i] != NOWHERE) sorted[place[i]] = more[i];
    }
  };
  u64 verdict = DONE;
  auto tell = [&](bool good) {
    if (UNLIKELY(!good)) verdict = range_of(most, highest, s.found, shift);
    told(verdict);
  };
  finish<true>(bin_of, scatter, tell, wanted, task.room, bins, sorted, task.chosen(), s);
  return verdict;
}

// Rows of any length, by one CTA or a cluster of 2, 4, 8 or 16; or APART, by CTAs that hand their
// candidates on in global memory.
template <u32 LOADS, bool APART>
__device__ __forceinline__ void select_long(const Task& task) {
  __shared__ Shared s;
  u32* bins = (u32*)memory;
  u64* sorted = memory + BINS / 2;
  u64* candidates = sorted + task.room;
  const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5;
  MARK(0);
  Slice slice = task.slice(task.log_cluster, blockIdx.y);
  const u32 peers = slice.peers, rank = slice.rank, log_peers = slice.log_peers;
  const bool cluster = !APART && peers > 1;
  if (cluster) {
    if (t == 32) {
      barrier_init(&s.counted, 1);
      barrier_init(&s.summed, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (t == 0) {
      barrier_init(&s.arrived, WARPS << log_peers);
      barrier_init(&s.told, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      if (rank != 0) barrier_expect(&s.told, sizeof(s.verdict));
    }
    cluster_arrive_relaxed();
  }
  depend();
  const int asked = task.lengths[blockIdx.x];
  slice.cut<LOADS>(task.columns, false);
  // Where a whole row fits into registers it is loaded before its length is known.
  const bool ahead = slice.batches == 1;
  // Loaded again, in its own branch: else the compiler has every row wait for its length.
  if (!ahead) slice.cut<LOADS>(task.length(task.asked()), true);
  Batch<LOADS> batch;
  batch.load(slice, 0);
  if (!APART) clear(bins, s);
#pragma unroll
  for (u32 i = 0; i < COARSE * COARSE; i += THREADS)
    if (i + t < COARSE * COARSE) s.fine[i + t] = 0;
  if (t < COARSE) s.coarse[t] = 0;
  if (t == 0) s.count = s.crowded = s.peak = 0;
  const u32 length = task.length(asked), wanted = min(task.k, length);
  if (UNLIKELY(task.trivial(length))) {
    if (cluster) cluster_wait();  // No CTA leaves a cluster that is still starting.
    if (!APART && rank == 0) task.take_all(length);
    return;
  }
  // The CTA's share of the k best, with a margin, if they lie anywhere; exactly k where it has all.
  u32 m = wanted;
  if (!(peers == 1 && slice.batches == 1)) {
    const u32 held = min(length, (THREADS * LOADS * VEC) << log_peers) >> log_peers;
    float inverse, deviation;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"((float)length));
    const float share = (float)wanted * (float)held * inverse;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(deviation) : "f"(share));
    m = (u32)(share + MARGIN * deviation) + 4;
  }
  if (UNLIKELY(ahead && length < task.columns)) {
    slice.loadable = length;
#pragma unroll
    for (u32 i = 0; i < LOADS * VEC; ++i)
      if (batch.index(i) >= length) batch.score[i] = lowest();
  }
  MARK(1);
  const float best = batch.best();
  MARK(2);
  const u32 most = largest(order_key(best), s);
  MARK(3);
  const bool nan_last = task.flags & NAN_LAST && most == NAN_KEY;
  const u32 floor = bound(batch, best, m, most, s);
  const u32 part = task.cap >> log_peers;
  if (APART) {
    Part* parts = task.parts_of();
    u64* mine = (u64*)(parts + MAX_CLUSTER) + rank * part;
    collect(batch, slice, best, floor, part, task.flags, s,
            [&](u32 position, u64 e) { mine[position] = e; });
    __syncthreads();
    if (t == 0) {
      parts[rank].limits = (u64)most << 32 | floor;
      parts[rank].count = nan_last ? task.cap + 1 : s.count;  // More than is taken.
    }
    return;
  }
  const u32 at = peer(candidates + rank * part, 0), barrier = peer(&s.arrived, 0);
  if (cluster) cluster_wait();  // The leader runs; its memory may be written.
  MARK(7);
  u32 stored = 0;
  u32 sent = collect(batch, slice, best, floor, part, task.flags, s, [&](u32 position, u64 e) {
    ++stored;
    if (cluster)
      peer_send(at + position * 8, e, barrier);
    else
      candidates[position] = e;
  });
  MARK(8);
  u32 highest = floor, most_all = most;
  if (cluster) {
    sent = __reduce_add_sync(~0u, sent) + (nan_last ? task.cap : 0);  // More than is taken.
    u32 bytes = __reduce_add_sync(~0u, stored) * 8 + 4;
    if (lane == 0) {
      peer_send(peer(&s.counts[rank][warp], 0), sent, barrier);
      if (warp == 0) {
        peer_send(peer(&s.limits[rank], 0), (u64)most << 32 | floor, barrier);
        bytes += 8;
      }
      peer_announce(barrier, bytes);
    }
    if (rank == 0) {
      barrier_wait(&s.arrived);
      const u64 limits = s.limits[lane & (peers - 1)];
      highest = __reduce_max_sync(~0u, (u32)limits);
      most_all = __reduce_max_sync(~0u, (u32)(limits >> 32));
    }
  } else {
    if (nan_last && t == 0) atomicAdd(&s.count, task.cap + 1);
    __syncthreads();
  }
  MARK(9);
  u64 verdict;
  if (rank == 0) {
    verdict = lead(task, candidates, part, log_peers, highest, most_all, wanted, bins, sorted, s,
                   [&](u64 found) {
                     if (0 < t && t < peers && cluster)  // The leader knows: it may leave first.
                       peer_send(peer(&s.verdict, t), found, peer(&s.told, t));
                   });
  } else {
    barrier_wait(&s.told);
    verdict = s.verdict;
  }
  if (UNLIKELY(verdict != DONE)) {
    __syncthreads();
    exact<LOADS>(slice, length, wanted, task.flags, verdict, bins, sorted, task.room, candidates,
                 task.cap, task.chosen(), s);
  }
  MARK(19);
  if (rank == 0) {
    if (UNLIKELY(wanted < task.k)) task.fill(wanted);
    task.took(verdict == DONE ? 3 : 4);
  }
}

// The last step after select_long APART: one CTA a row.
__device__ __forceinline__ void merge(const Task& task) {
  __shared__ Shared s;
  u32* bins = (u32*)memory;
  u64* sorted = memory + BINS / 2;
  const u32 t = threadIdx.x, lane = t & 31, log_peers = task.log_cluster;
  depend();
  const u32 length = task.length(task.lengths[blockIdx.x]), wanted = min(task.k, length);
  if (UNLIKELY(task.trivial(length))) return task.take_all(length);
  const Part* parts = task.parts_of();
  const u32 nth = lane & ((1u << log_peers) - 1);
  const u32 highest = __reduce_max_sync(~0u, (u32)parts[nth].limits);
  const u32 most = __reduce_max_sync(~0u, (u32)(parts[nth].limits >> 32));
  clear(bins, s);
  if (t == 0) {
    s.crowded = s.peak = 0;
    s.count = parts[0].count;
  }
  if (t < MAX_CLUSTER * WARPS) s.counts[t / WARPS][t % WARPS] = 0;
  __syncthreads();
  if (t < 1u << log_peers) s.counts[t][0] = parts[t].count;
  __syncthreads();
  const u64 verdict =
      lead(task, (const u64*)(parts + MAX_CLUSTER), task.cap >> log_peers, log_peers, highest, most,
           wanted, bins, sorted, s, [](u64) {});
  if (UNLIKELY(verdict != DONE)) {
    __syncthreads();
    exact<8 / VEC>(task.slice(0, 0), length, wanted, task.flags, verdict, bins, sorted, task.room,
                   sorted + task.room, task.cap, task.chosen(), s);
  }
  if (UNLIKELY(wanted < task.k)) task.fill(wanted);
  task.took(verdict == DONE ? 3 : 4);
}

#define SELECT(NAME, HOW)                                                                        \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                       \
      NAME(const Score* logits, const int* lengths, int* out, u32* paths, u64* parts,            \
           u64 row_stride, u64 out_stride, u32 columns, u32 column_stride, u32 k, u32 flags,     \
           u32 room, u32 cap, u32 log_cluster) {                                                 \
    HOW(Task{logits, lengths, out, paths, row_stride, out_stride, columns, column_stride, k,     \
             flags, room, cap, log_cluster, parts});                                             \
  }
// Each size of CTA has the kernels that were fastest somewhere. 1,024 threads of 16 scores are left
// out: NVRTC 13.0 compiles them wrongly at their limit of 64 registers (docs/topk.md).
#if THREADS == 1024
#if SCORE == 0
SELECT(short_4, select_short<1>)
#endif
SELECT(short_8, select_short<8 / VEC>)
SELECT(long_8, (select_long<8 / VEC, false>))
#else
#if SCORE == 0
SELECT(long_4, (select_long<1, false>))
#endif
SELECT(short_16, select_short<16 / VEC>)
SELECT(long_8, (select_long<8 / VEC, false>))
SELECT(long_16, (select_long<16 / VEC, false>))
SELECT(part_16, (select_long<16 / VEC, true>))
SELECT(merge_1, merge)
#endif
