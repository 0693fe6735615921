#pragma once
// What the probe uses of the binary interfaces of CUPTI and of NVTX (version 3), declared here so that it builds without a CUDA
// toolkit; where one is installed, cupti_check.cpp compares each number with the real headers. Fields have had these places in
// all records of CUDA 11.4 to 13.

#include <cstddef>
#include <cstdint>

namespace millrace::probe {

using CuptiResult = std::int32_t;
constexpr CuptiResult kCuptiSuccess = 0, kCuptiOtherSubscriber = 39;

enum CuptiDomain : std::uint32_t { kDriverDomain = 1, kRuntimeDomain = 2 };
enum CuptiSite : std::uint32_t { kEnter = 0, kExit = 1 };

enum CuptiActivity : std::uint32_t {
    kActivityMemcpy = 1,
    kActivityMemset = 2,
    kActivityKernel = 10,
    kActivityMemcpyPeer = 22,
};
constexpr std::uint32_t kFlushForced = 1;

/// What a callback is told about a call.
struct CuptiCall {
    std::uint32_t site;  ///< CuptiSite
    const char* function;
    const void* parameters;  ///< a structure by the call's signature
    void* result;            ///< at the exit: int, 0 is success
    const char* symbol;      ///< of launches: the kernel
    void* context;
    std::uint32_t context_number;
    std::uint64_t* kept;  ///< a word that lasts from enter to exit
    std::uint32_t correlation;
};

struct CuptiSubscriberParameters {
    std::size_t size;
    const char* name;
    char* incumbent;  ///< gets the name of who has subscribed already
    std::size_t incumbent_size;
};

using CuptiCallback = void (*)(void* user, std::uint32_t domain, std::uint32_t call, const CuptiCall* data);
using CuptiBufferRequest = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records);
using CuptiBufferComplete = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                                     std::size_t valid);
using CuptiClock = std::uint64_t (*)();

/// Places of fields within activity records; each record begins with its kind as uint32.
namespace kernel_at {
constexpr std::size_t kRegisters = 6, kStart = 16, kEnd = 24, kDevice = 40, kStream = 48, kGrid = 52, kBlock = 64,
                      kStaticShared = 76, kDynamicShared = 80, kCorrelation = 92, kName = 104, kNode = 144, kGraph = 156;
}
namespace copy_at {
constexpr std::size_t kKind = 4, kFrom = 5, kTo = 6, kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kStream = 40,
                      kCorrelation = 44, kNode = 64, kGraph = 72;
}
namespace peer_copy_at {
constexpr std::size_t kFrom = 5, kTo = 6, kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kStream = 40, kCorrelation = 60,
                      kNode = 72;
}
namespace set_at {
constexpr std::size_t kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kStream = 40, kCorrelation = 44, kMemory = 50, kNode = 64;
}

/// Places of parameters within the structures that callbacks get.
namespace launch_at {
constexpr std::size_t kFunction = 0, kGrid = 8, kBlock = 20;                         // runtime and driver
constexpr std::size_t kArguments = 32, kStream = 48;                                 // cudaLaunchKernel
constexpr std::size_t kDriverStream = 40, kDriverArguments = 48, kDriverBlock = 56;  // cuLaunchKernel
constexpr std::size_t kConfig = 0, kExFunction = 8, kExArguments = 16;               // cudaLaunchKernelExC, cuLaunchKernelEx
constexpr std::size_t kExBlock = 24;                                                 // cuLaunchKernelEx
constexpr std::uint64_t kBlockEnd = 0, kBlockPointer = 1, kBlockSize = 2;            // keys of a block of arguments
constexpr std::size_t kConfigStream = 32;  // in both configurations: grid, block, shared memory, stream
}  // namespace launch_at

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
