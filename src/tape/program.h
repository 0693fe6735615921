#pragma once
// A built step program: records bound to memory, prepared as kernels, run eagerly, record by record with checks, or replayed.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "tape/builder.h"
#include "tape/planner.h"

namespace millrace::tape {

/// Where a checked run found the first value that is not finite. Slot "state": the operator marked the step without writing such
/// a value (a sum that only overflows as a float, a label out of range).
struct NonFinite {
    std::string op, layer, slot;
    int member = 0, group = 0, row = 0, col = 0;
    double value = 0;
    [[nodiscard]] std::string text() const;
};

/// How long one kernel of a program took.
struct KernelTime {
    std::string text;  ///< operators and layers it covers
    double microseconds = 0;
    std::string form = {};  ///< how the backend does it, where it has a choice
    double predicted = 0;   ///< microseconds of that form
};

/// One kernel of a program as it was planned.
struct KernelPlan {
    std::vector<std::string> records;     ///< "dense_forward layers.0.linear1 [1,1,2048,1024]bf16"
    std::string form;                     ///< as in KernelTime
    double predicted = 0;                 ///< microseconds; 0: not known
    std::vector<ops::FormOffer> offers;   ///< all forms that there were to choose from
    std::int64_t flops = 0;               ///< of its matrix products
    std::int64_t bytes = 0, scratch = 0;  ///< of its operands, each counted once; of memory that is its own
    int repeat = 1;
};

/// Memory of programs that never run at the same time: activations are shared, so that there are as many as the largest of them
/// needs; behind them lies the scratch of each, which its kernels keep from run to run.
class Arena {
public:
    struct Size {
        std::int64_t activations = 0, scratch = 0;
        [[nodiscard]] std::int64_t total() const { return activations + scratch; }
    };
    explicit Arena(ops::Backend& backend) : backend_(backend) {}
    /// Where the scratch begins among that of all programs.
    std::int64_t reserve(std::int64_t activations, std::int64_t scratch);
    /// Gives back what was reserved since it had that size.
    void shrink_to(const Size& size) { size_ = size; }
    base::Status allocate();
    [[nodiscard]] std::byte* data() const;  ///< before allocate() an address that stands for it
    /// Of a program that was planned before allocate(); nothing for others.
    [[nodiscard]] std::span<std::byte> scratch(std::int64_t begin, std::int64_t bytes) const;
    [[nodiscard]] const Size& size() const { return size_; }
    [[nodiscard]] std::int64_t allocated_bytes() const { return memory_ ? static_cast<std::int64_t>(memory_->size()) : 0; }

private:
    ops::Backend& backend_;
    Size size_, allocated_;
    std::unique_ptr<ops::Memory> memory_;
};

/// Floating-point operations of the matrix products in one run, all members.
struct Flops {
    std::int64_t always = 0;
    std::int64_t conditional = 0;  ///< of records with a condition: at most so many are done
    [[nodiscard]] std::int64_t total() const { return always + conditional; }
};

class Program {
public:
    /// Takes what the builder wrote and plans its memory in `arena` (which is allocated later, when all programs are planned),
    /// that of its kernels included.
    Program(std::string name, Store& store, Builder&& builder, Arena& arena);

    /// Binds, prepares and warms up nothing: call after Store::allocate() and Arena::allocate().
    base::Status prepare();
    /// Enqueues all kernels once.
    void run() noexcept;
    /// Captures the program into one launch. Run it at least once before. No-op where the backend cannot capture.
    base::Status capture();
    /// Replays when captured, else runs.
    void launch() noexcept;
    /// Runs kernel by kernel, waiting and scanning every output; stops at the first value that is not finite.
    std::optional<NonFinite> run_checked();

    /// Calls `visit` with every kernel in the order of one run, those of repeated sections as often as they run.
    template <class Visit>
    void for_each_launch(Visit visit) {
        for (std::size_t s = 0; s < sections_.size(); ++s)
            for (int i = 0; i < sections_[s].repeat; ++i)
                for (auto& kernel : kernels_[s]) visit(*kernel);
    }
    [[nodiscard]] std::string text_of(const ops::Kernel& kernel) const;  ///< operators and layers it covers
    [[nodiscard]] Flops flops() const;

    /// Times every kernel alone, `repeats` times back to back (captured where the backend can). For profiling: parameters,
    /// counters and statistics are left as those runs leave them.
    base::Result<std::vector<KernelTime>> time_kernels(int repeats);

    /// Every kernel in order, those of repeated sections once; in the order of time_kernels().
    [[nodiscard]] std::vector<KernelPlan> kernel_plans() const;

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const MemoryPlan& plan() const { return plan_; }
    /// Working memory that its kernels share with those of all other programs.
    [[nodiscard]] const ops::WorkingMemory& working_memory() const { return working_; }
    /// As they are after the backend's rewrites; one of a fused operator (ops/fused.h) has the operator's name.
    [[nodiscard]] const std::vector<ops::Record>& records() const { return records_; }
    [[nodiscard]] std::size_t kernel_count() const;  ///< launches of one eager run
    [[nodiscard]] bool captured() const { return replay_ != nullptr; }
    [[nodiscard]] std::size_t node_count() const { return replay_ ? replay_->node_count() : 0; }  ///< of the captured form
    [[nodiscard]] std::string listing() const;  ///< one line per record, for people
    /// The buffer behind a local view, as doubles in [K,G,rows,cols] order. For tests and debugging; waits for the device.
    std::vector<double> read(const tensor::View& view) const;
    void write(const tensor::View& view, const std::vector<double>& values) const;

private:
    [[nodiscard]] std::byte* address(const tensor::View& view) const;
    [[nodiscard]] tensor::Operand bind(const tensor::View& view) const;
    void bind_records();
    [[nodiscard]] std::vector<std::byte> download(const tensor::View& view) const;  ///< from its first element to its last
    std::optional<NonFinite> scan(const ops::Record& record) const;
    std::optional<NonFinite> find_new_mark(const ops::Record& record, std::vector<bool>& marked) const;

    std::string name_;
    Store& store_;
    Arena& arena_;
    std::vector<ops::Record> records_;
    std::vector<Buffer> buffers_;
    std::vector<Section> sections_;
    MemoryPlan plan_;
    ops::WorkingMemory working_;
    std::int64_t scratch_ = 0, scratch_bytes_ = 0;  ///< where it begins in that of the arena
    std::vector<ops::Bound> bound_;
    std::vector<std::vector<std::unique_ptr<ops::Kernel>>> kernels_;  ///< per section
    std::unique_ptr<ops::Replay> replay_;
};

/// Programs that this process has captured: what must stay as it is while trials come and go.
std::uint64_t captures_so_far();

}  // namespace millrace::tape
