#include "diagnose/reading/call_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {
namespace {

struct Pattern {
    std::array<std::string_view, 7> parts;  ///< empty: none
    CallKind kind, asynchronous;
};

/// The first that has a part in the name (without the library's prefix) decides; so the narrow ones stand before the wide ones.
constexpr std::array kPatterns = [] {
    using enum CallKind;
    return std::array{
        Pattern{{"GraphLaunch"}, kGraphLaunch, kGraphLaunch},
        Pattern{{"LaunchHostFunc", "StreamAddCallback"}, kHostFunction, kHostFunction},
        Pattern{{"Launch"}, kLaunch, kLaunch},  // LaunchKernel, LaunchKernelExC, LaunchCooperativeKernel, ModuleLaunchKernel
        Pattern{{"Capture", "GraphInstantiate", "GraphExecUpdate"}, kCapture, kCapture},
        Pattern{{"Memcpy"}, kCopy, kCopyAsync},
        Pattern{{"Memset"}, kSet, kSetAsync},
        Pattern{{"DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"}, kDeviceSync, kDeviceSync},
        Pattern{{"StreamSynchronize"}, kStreamSync, kStreamSync},
        Pattern{{"EventSynchronize"}, kEventSync, kEventSync},
        Pattern{{"EventRecord"}, kEventRecord, kEventRecord},
        Pattern{{"EventQuery"}, kEventQuery, kEventQuery},
        Pattern{{"StreamWaitEvent"}, kStreamWait, kStreamWait},
        Pattern{{"StreamQuery"}, kStreamQuery, kStreamQuery},
        Pattern{{"HostRegister", "HostUnregister"}, kHostRegister, kHostRegister},
        Pattern{{"MallocHost", "HostAlloc", "HostMalloc", "MemAllocHost"}, kHostAlloc, kHostAlloc},
        Pattern{{"FreeHost", "HostFree"}, kHostFree, kHostFree},
        Pattern{{"MallocFromPool", "MemAllocFromPool"}, kAllocAsync, kAllocAsync},
        Pattern{{"Malloc", "MemAlloc"}, kAlloc, kAllocAsync},
        Pattern{{"MemCreate"}, kAlloc, kAlloc},  // expandable segments: physical memory comes and goes through these
        Pattern{{"MemRelease"}, kFree, kFree},
        Pattern{{"MemFree"}, kFree, kFreeAsync},
        Pattern{{"MemGetInfo"}, kAttribute, kAttribute},
        Pattern{{"ModuleLoad", "LibraryLoad", "ModuleGetFunction"}, kModuleLoad, kModuleLoad},
        Pattern{{"GetAttribute", "SetAttribute", "DeviceGet", "GetDevice", "Occupancy", "PeekAtLastError", "GetLastError"},
                kAttribute,
                kAttribute},
    };
}();

constexpr std::array<std::string_view, 6> kMemoryKinds = {"Unknown", "Pageable", "Pinned", "Device", "Array", "Managed"};

MemoryKind memory_kind_of(std::string_view word) {
    const auto* const found = std::ranges::find(kMemoryKinds, word);
    return found == kMemoryKinds.end() ? MemoryKind::kUnknown : static_cast<MemoryKind>(found - kMemoryKinds.begin());
}

}  // namespace

CallKind call_kind_of(std::string_view name) {
    using enum CallKind;
    for (const std::string_view prefix : {"cuda", "hip", "cu"})
        if (name.starts_with(prefix)) {
            name.remove_prefix(prefix.size());
            break;
        }
    // "Free" alone is the runtime's; as a part of other words it means many things.
    if (name.starts_with("Free") && !name.starts_with("FreeHost"))
        return name.starts_with("FreeAsync")                                        ? kFreeAsync
               : name.starts_with("FreeArray") || name.starts_with("FreeMipmapped") ? kOther
                                                                                    : kFree;
    const bool asynchronous = name.find("Async") != std::string_view::npos;
    for (const Pattern& pattern : kPatterns)
        for (const std::string_view part : pattern.parts)
            if (!part.empty() && name.find(part) != std::string_view::npos)
                return asynchronous ? pattern.asynchronous : pattern.kind;
    return kOther;
}

std::pair<MemoryKind, MemoryKind> copy_ends_of(std::string_view name) {
    const std::size_t open = name.find('('), arrow = name.find(" -> "), close = name.rfind(')');
    if (open == std::string_view::npos || arrow == std::string_view::npos || close == std::string_view::npos ||
        !(open < arrow && arrow < close))
        return {MemoryKind::kUnknown, MemoryKind::kUnknown};
    return {memory_kind_of(name.substr(open + 1, arrow - open - 1)), memory_kind_of(name.substr(arrow + 4, close - arrow - 4))};
}

std::string_view name_of(MemoryKind kind) {
    const auto number = static_cast<std::size_t>(kind);
    return number < kMemoryKinds.size() ? kMemoryKinds[number] : kMemoryKinds[0];
}

std::string copy_name_of(MemoryKind from, MemoryKind to) {
    const auto side = [](MemoryKind kind) {
        switch (kind) {
            case MemoryKind::kPageable:
            case MemoryKind::kPinned: return 'H';
            case MemoryKind::kArray: return 'A';
            default: return 'D';
        }
    };
    return fmt::format("Memcpy {}to{} ({} -> {})", side(from), side(to), name_of(from), name_of(to));
}

bool is_communication(std::string_view kernel) {
    return contains_any(kernel, "nccl rccl nvshmem allreduce_kernel all_reduce_kernel");
}

}  // namespace millrace::diagnose
