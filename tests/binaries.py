# SPDX-License-Identifier: Apache-2.0
"""Files with device code, made for the tests.

``data/clusters.fatbin`` holds, for sm_90a and sm_110f and as PTX of compute_90, three kernels:
``two`` with a cluster of 2 and at most 256 threads, ``four<512>`` with a cluster of 4, and
``plain`` without one; each writes one integer a thread (nvcc 13.0, ``-Xfatbin -compress-all``).
"""

import struct
import zipfile
from pathlib import Path

FATBIN = (Path(__file__).parent / "data" / "clusters.fatbin").read_bytes()

SHIPPED = r"""
namespace vllm { namespace cooperative {
template <unsigned K> struct CooperativeTopKParams {
  const float* logits; int* output; const int* lengths; unsigned char* ties;
  unsigned rows; unsigned stride;
};
template <unsigned K> __device__ void select(CooperativeTopKParams<K> given) {
  extern __shared__ unsigned char unused[];
  if (blockIdx.y) return;
  const float* row = given.logits + static_cast<unsigned long long>(blockIdx.x) * given.stride;
  int* out = given.output + blockIdx.x * K;
  int length = given.lengths[blockIdx.x];
  for (int i = threadIdx.x; i < static_cast<int>(K); i += blockDim.x)
    if (i >= length) out[i] = -1;
  for (int i = threadIdx.x; i < length; i += blockDim.x) {
    float own = row[i];
    unsigned before = 0;
    for (int j = 0; j < length; ++j) before += row[j] > own || (row[j] == own && j < i);
    if (before < K) out[before] = i;
  }
}
#define TOPK(C) \
  template <unsigned K> __global__ void __cluster_dims__(1, C, 1) __launch_bounds__(1024) \
  cooperative_topk_cs##C(CooperativeTopKParams<K> given) { select<K>(given); } \
  template __global__ void cooperative_topk_cs##C<512>(CooperativeTopKParams<512>); \
  template __global__ void cooperative_topk_cs##C<1024>(CooperativeTopKParams<1024>);
TOPK(2) TOPK(4) TOPK(8) TOPK(16)
} }
"""
"""Kernels with the names, clusters, threads and parameter block of vLLM 0.33.0's: a CTA ranks every
score of a row by counting. Code of the tests' own."""


def shipped_cubin(target: str, text: str = SHIPPED) -> bytes:
    """Compile stand-ins of shipped kernels for a target, such as ``sm_90``."""
    from thorprobe.driver import compile as kernels

    return kernels._compile(text, "shipped.cu", (f"-arch={target}", "-std=c++17"))


def library(fatbin: bytes, section: bytes = b".nv_fatbin") -> bytes:
    """Make the least x86-64 shared library that carries bytes in one section."""
    names = b"\0" + section + b"\0.shstrtab\0"
    at = 64
    strings = at + len(fatbin)
    table = (strings + len(names) + 7) // 8 * 8
    head = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)

    def header(name: int, kind: int, offset: int, size: int) -> bytes:
        return struct.pack(
            "<IIQQQQIIQQ", name, kind, 2 if kind == 1 else 0, 0, offset, size, 0, 0, 16, 0
        )

    body = head + fatbin + names
    body += bytes(table - len(body)) + bytes(64)
    body += header(1, 1, at, len(fatbin))
    return body + header(2 + len(section), 3, strings, len(names))


def wheel(
    path: Path, members: dict[str, bytes], package: str = "made", version: str = "1.0"
) -> Path:
    """Write a wheel with these members and the metadata of a package."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(
            f"{package}-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n",
        )
    return path


_LIVE = 140
# Values that are all alive at the barrier: more registers than 1,024 threads can have.
HUNGRY = f"""extern "C" __global__ void hungry(float *p) {{
  float kept[{_LIVE}];
#pragma unroll
  for (int i = 0; i < {_LIVE}; ++i) kept[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < {_LIVE}; ++i) p[i * 2048 + threadIdx.x] = kept[i];
}}"""


def hungry_cubin():
    """Compile a kernel `hungry` for sm_120, without a cluster, that wants over 128 registers."""
    return shipped_cubin("sm_120", HUNGRY)


def most_threads(registers):
    """Return the most threads of a CTA: a warp takes registers in eights a thread, of 65,536."""
    return 65_536 // (-(-registers // 8) * 8 * 32) * 32
