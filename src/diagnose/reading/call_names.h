#pragma once
#include <string_view>
#include <utility>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// What a call of the CUDA runtime or driver (or of HIP) does, told from its name in any version: "cudaMemcpyAsync",
/// "cuMemcpyHtoDAsync_v2", "cudaLaunchKernel_ptsz". kOther when the name says nothing.
CallKind call_kind_of(std::string_view name);

/// From and to of "Memcpy HtoD (Pageable -> Device)"; unknown where the name does not say.
std::pair<MemoryKind, MemoryKind> copy_ends_of(std::string_view name);
/// "Memcpy HtoD (Pageable -> Device)".
std::string copy_name_of(MemoryKind from, MemoryKind to);
std::string_view name_of(MemoryKind kind);  ///< "Pageable"

/// Kernels of NCCL and its like.
bool is_communication(std::string_view kernel);

}  // namespace millrace::diagnose
