#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "diagnose/reading/kineto_reader.h"

namespace millrace::diagnose {
namespace {

/// # is a number that grows, @ a time, ~ one of 97 lines.
constexpr std::string_view kEvents = R"j(  {
    "ph": "X", "cat": "python_function", "name": "/home/somebody/project/models/network.py(~): forward", "pid": 4242, "tid": 4242,
    "ts": @.000, "dur": 9.000,
    "args": {
      "Python parent id": #, "Python id": #, "Ev Idx": #
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 4242, "tid": 4242,
    "ts": @.100, "dur": 8.000,
    "args": {
      "External id": #, "Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["float", "float", "float"],
      "Input Strides": [[1024, 1], [1, 1024], [1]], "Input Dims": [[64, 1024], [1024, 1024], [1024]], "Ev Idx": #
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": 4242,
    "ts": @.200, "dur": 4.000,
    "args": {
      "External id": #, "cbid": 211, "correlation": #
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)", "pid": 0, "tid": 7,
    "ts": @.500, "dur": 5.000,
    "args": {
      "External id": #, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": #, "registers per thread": 32,
      "shared memory": 0, "blocks per SM": 7.757576, "warps per SM": 62.060608, "grid": [1024, 1, 1], "block": [256, 1, 1],
      "est. achieved occupancy %": 97
    }
  })j";

/// A trace of `size` bytes that exists nowhere as a whole: launches and kernels of PyTorch's usual length, under functions and
/// operators.
class EndlessTrace : public io::ByteSource {
public:
    explicit EndlessTrace(std::uint64_t size) : size_(size), left_(R"({"schemaVersion":1,"traceEvents":[)") {}

    base::Result<std::size_t> read(std::span<char> into) override {
        std::size_t filled = 0;
        while (filled < into.size()) {
            if (left_.empty() && !more()) break;
            const std::size_t count = std::min(left_.size(), into.size() - filled);
            std::copy_n(left_.data(), count, into.data() + filled);
            left_.erase(0, count);
            filled += count;
        }
        given_ += filled;
        return filled;
    }
    [[nodiscard]] std::uint64_t launches() const { return launches_; }

private:
    bool more() {
        if (ended_) return false;
        ended_ = given_ >= size_;
        if (ended_) {
            left_ = "],\"traceName\":\"x\"}";
            return true;
        }
        const std::uint64_t at = launches_ * 10, i = ++launches_;
        left_ = i > 1 ? ",\n" : "\n";
        for (const char letter : kEvents) {
            if (letter == '#')
                left_ += std::to_string(i);
            else if (letter == '@')
                left_ += std::to_string(at);
            else if (letter == '~')
                left_ += std::to_string(i % 97);
            else
                left_ += letter;
        }
        return true;
    }

    std::uint64_t size_, given_ = 0, launches_ = 0;
    std::string left_;
    bool ended_ = false;
};

long peak_kilobytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/// MILLRACE_TRACE_MEGABYTES=1024 tries a gigabyte.
TEST(KinetoMemory, StaysWellBelowTheSizeOfTheTrace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers take memory of their own";
#endif
    const char* wanted = std::getenv("MILLRACE_TRACE_MEGABYTES");
    const std::uint64_t megabytes = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 64;
    ASSERT_GT(megabytes, 0u);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // a process of its own, as peaks only grow
        const long before = peak_kilobytes();
        EndlessTrace trace(megabytes << 20);
        const auto timeline = read_kineto(trace, "endless.json");
        const long grew = peak_kilobytes() - before;
        const bool whole = timeline.ok() && timeline->work.size() == trace.launches() && timeline->stacks.size() == 98;
        fmt::print("{} MB of trace, {} launches, {} MB of memory\n", megabytes, trace.launches(), grew / 1024);
        std::fflush(stdout);
        const bool small = static_cast<std::uint64_t>(grew) < (megabytes << 10) / 3 + 4096;
        ::_exit(!whole ? 2 : small ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "1: took more than a third of the trace's size, 2: was not read whole";
}

}  // namespace
}  // namespace millrace::diagnose
