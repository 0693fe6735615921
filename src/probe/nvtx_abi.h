#pragma once
// What the probe uses of NVTX's binary interface (version 3), compared with the real headers in cupti_check.cpp where there are
// any.

#include <cstddef>
#include <cstdint>

namespace millrace::probe {

using NvtxFunction = void (*)();
using NvtxTable = NvtxFunction**;
using NvtxGetTable = const void* (*)(std::uint32_t table);

struct NvtxCallbacks {
    std::size_t size;
    int (*module_table)(std::uint32_t module, NvtxTable* table, std::uint32_t* size);
};

constexpr std::uint32_t kNvtxCallbacks = 1;
constexpr std::uint32_t kNvtxCore = 1, kNvtxCore2 = 5;
constexpr std::uint32_t kNvtxPushEx = 8, kNvtxPushA = 9, kNvtxPop = 11;
constexpr std::uint32_t kNvtxDomainPushEx = 4, kNvtxDomainPop = 5;
constexpr std::int32_t kNvtxAscii = 1;

/// Places within the attributes of an event.
namespace nvtx_at {
constexpr std::size_t kMessageType = 32, kMessage = 40;
}

}  // namespace millrace::probe
