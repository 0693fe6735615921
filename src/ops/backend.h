#pragma once
// A backend turns bound records into kernels that can be run again and again. Preparing may search and fail; its memory is
// measured before. Running never allocates, never synchronises and never fails.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/op.h"
#include "ops/rewrite.h"

namespace millrace::comm {
class Group;
}

namespace millrace::ops {

enum class DeviceKind : std::uint8_t { ref, cpu, cuda };
const char* name_of(DeviceKind kind);

/// A way to do the records of a kernel that its backend knows.
struct FormOffer {
    std::string name;
    std::string refusal;   ///< why it does not apply; empty: it does
    double predicted = 0;  ///< microseconds
};

/// One prepared launch. It may cover several adjacent records (a region); `first` and `count` say which.
class Kernel {
public:
    virtual ~Kernel() = default;
    virtual void run() noexcept = 0;
    std::size_t first = 0, count = 1;
    const char* form = nullptr;     ///< how the backend does its records, where it has a choice
    double predicted = 0;           ///< microseconds, of that form
    std::vector<FormOffer> offers;  ///< all forms of the choice
    std::size_t scratch = 0;        ///< bytes of the program's scratch that are its own
};

/// Device memory owned by a backend; zeroed when allocated.
class Memory {
public:
    virtual ~Memory() = default;
    [[nodiscard]] virtual std::byte* data() = 0;
    [[nodiscard]] virtual std::size_t size() const = 0;
};

/// A captured program: one launch replays all of it.
class Replay {
public:
    virtual ~Replay() = default;
    virtual void launch() noexcept = 0;
    [[nodiscard]] virtual std::size_t node_count() const = 0;
};

/// Marks on the device's own time line. A mark is passed when everything enqueued before it is done.
class Timeline {
public:
    virtual ~Timeline() = default;
    /// Enqueues mark number `index`; inside a capture it becomes part of the replay. Never waits.
    virtual void mark(std::size_t index) noexcept = 0;
    /// Milliseconds between two marks of the newest pass over them. Waits for the later one.
    [[nodiscard]] virtual base::Result<double> milliseconds(std::size_t from, std::size_t to) = 0;
    /// What is enqueued between hold() and release() starts at release(), so that short kernels follow each other as they would
    /// in a replay and not as fast as the host can launch them. Backends without a queue have nothing to hold.
    virtual void hold() noexcept {}
    virtual void release() noexcept {}
};

/// Copies to device memory beside the programs' own queue, for one thread.
class Uploader {
public:
    virtual ~Uploader() = default;
    /// Returns when the bytes are there. `host` comes from allocate_shared(). Nothing that is enqueued may read or write the
    /// target.
    [[nodiscard]] virtual base::Status copy(std::byte* device, const std::byte* host, std::size_t bytes) = 0;
};

/// Of the device, in bytes; what other processes hold is not free.
struct MemoryState {
    std::size_t free = 0, total = 0;
    std::size_t before = 0;       ///< free when the backend was made, the driver's context not counted
    std::size_t held = 0;         ///< by the backend itself, for all programs: workspace of its library
    std::size_t allocations = 0;  ///< calls for memory of the device or pinned memory so far
};

/// Bytes that kernels need while they run. All programs use the same memory: it holds the most that any of them needs of either.
struct WorkingMemory {
    std::size_t common = 0, workers = 0;  ///< `workers`: of all threads together

    void grow_to(const WorkingMemory& other) {
        common = std::max(common, other.common);
        workers = std::max(workers, other.workers);
    }
};

struct BackendOptions {
    bool deterministic = false;  ///< pin kernels and tiles so that K members equal K separate runs to the bit
    int threads = 0;             ///< CPU threads; 0: one per core
    /// Rewrites that are left out, by name (rewrite_names()), or "all": every record is then run by itself.
    std::vector<std::string> rewrites_off = {};
    /// Forms that CUDA takes where they apply: "dense_forward=tiles", or one that Backend::forms() said before.
    std::vector<std::string> forms = {};
    std::string cpu_table = {};  ///< kernels of the CPU: sse2, avx2, avx512, neon; empty: MILLRACE_CPU, else the fastest
    bool tf32 = false;  ///< CUDA: products of the library round f32 operands to tf32, ten bits of mantissa, unless pinned
    /// Whose ranks share the rows of a step (ops/parts), borrowed; null: this process alone.
    comm::Group* group = nullptr;
};

class Backend {
public:
    virtual ~Backend() = default;
    [[nodiscard]] virtual DeviceKind kind() const = 0;
    [[nodiscard]] virtual std::string description() const = 0;  ///< "NVIDIA H200, 132 SMs" or "2 threads, NEON"

    [[nodiscard]] virtual base::Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) = 0;
    /// Absent where the device's memory is the machine's.
    [[nodiscard]] virtual std::optional<MemoryState> memory() const { return std::nullopt; }
    /// Memory that device and host both address without a copy (the metrics ring).
    [[nodiscard]] virtual base::Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes) = 0;
    /// Ordered after earlier work, returns when host may change.
    virtual void upload(std::byte* device, const void* host, std::size_t bytes) = 0;
    virtual void download(void* host, const std::byte* device, std::size_t bytes) = 0;  ///< waits for earlier work
    virtual void clear(std::byte* device, std::size_t bytes) = 0;  ///< zeros, ordered after earlier work; never waits
    [[nodiscard]] virtual base::Result<std::unique_ptr<Uploader>> make_uploader() = 0;
    virtual void synchronize() = 0;
    /// The first error of the device since the last call, if any: checked between steps, never inside one.
    [[nodiscard]] virtual base::Status check() = 0;

    /// A time line with marks 0 to `marks` - 1; the host's clock unless the device has its own.
    [[nodiscard]] virtual base::Result<std::unique_ptr<Timeline>> make_timeline(std::size_t marks);
    /// The vendor's figure for dense products of this operand type, per second; absent when unknown.
    [[nodiscard]] virtual std::optional<double> peak_flops(tensor::DType) const { return std::nullopt; }

    /// The records of a window that the rewrite takes on this backend; none where it is switched off.
    [[nodiscard]] virtual Match match(const Rewrite&, const Window&) const { return {}; }
    /// Bytes of scratch that the kernels of a program will keep. Records need addresses, distinct and aligned as they will be,
    /// and no memory behind them but for `segments` slots, where it may be the host's. What prepare() refuses counts as nothing.
    [[nodiscard]] virtual std::size_t measure_scratch(std::span<const Bound>, std::span<const Section>) { return 0; }
    /// Working memory that these kernels need while they run, of records as above.
    [[nodiscard]] virtual WorkingMemory measure_shared(std::span<const Bound>) { return {}; }
    /// Kernels for the records of a program, in order. They always run one after the other, those of a section as often as it
    /// repeats, so that a kernel may rely on what an earlier one left; none covers records of two sections. No sections: all
    /// records are one. `records` and `scratch` must outlive the kernels; what does not fit into `scratch` is allocated.
    [[nodiscard]] virtual base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records,
                                                                                     std::span<const Section> sections,
                                                                                     std::span<std::byte> scratch = {}) = 0;
    /// The forms that were chosen so far, for BackendOptions::forms of a backend that shall choose the same. None in
    /// deterministic runs: these go by prediction alone.
    [[nodiscard]] virtual std::vector<std::string> forms() const { return {}; }

    [[nodiscard]] virtual bool can_capture() const { return false; }
    /// Captures what `enqueue` runs. Everything it runs must have run once before on this backend (warm-up).
    [[nodiscard]] virtual base::Result<std::unique_ptr<Replay>> capture(const std::function<void()>&) {
        return base::Error{"this backend runs programs directly; capturing needs CUDA"};
    }
};

/// What prepare() answers for an operator whose definition lacks a backend: "operator X has no cpu backend".
base::Error missing_operator(const OpDef& op, DeviceKind kind);
/// Whether the machine has a usable CUDA device; the error says why not.
base::Status cuda_available();
/// Whether there is one and it has no bf16: compute capability below 8.0.
bool cuda_lacks_bf16();
base::Result<std::unique_ptr<Backend>> make_backend(DeviceKind kind, const BackendOptions& options);

}  // namespace millrace::ops
