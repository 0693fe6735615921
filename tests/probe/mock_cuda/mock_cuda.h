#pragma once
// What the stand-ins for CUDA and CUPTI tell one another.

#include <cstddef>
#include <cstdint>

namespace millrace::mock {

struct CallEvent {
    std::uint32_t domain, number;
    bool is_exit;
    const char* name;
    const void* parameters;
    int* result;
    const char* symbol;
    void* context;
    std::uint64_t* kept;
    bool watched;   ///< CUPTI's own: it was listening when the call began
    void* session;  ///< CUPTI's own: what it had when the call began
};

enum class Work : std::uint32_t { kKernel, kCopy, kSet };

struct WorkEvent {
    Work work;
    std::uint32_t stream;
    std::uint64_t node, bytes;
    std::uint64_t queued_ns, running_ns;  ///< before it begins, and until it ends; counted from now
    std::uint32_t from, to;               ///< kinds of memory as CUPTI counts them
    const char* name;
    std::uint32_t sizes[6];  ///< grid and block
};

/// Set by the CUPTI that is loaded.
struct Hooks {
    void (*call)(CallEvent& event) = nullptr;
    void (*work)(const WorkEvent& event) = nullptr;
};

}  // namespace millrace::mock

extern "C" void mock_cuda_set_hooks(const millrace::mock::Hooks* hooks);
