#pragma once
// A program once more, with marks between its parts. The program itself stays as it is: what is timed here is a second one over
// the same kernels and memory, run now and then in the place of an ordinary step. It leaves the same bits behind.

#include <array>
#include <memory>
#include <vector>

#include "ops/backend.h"
#include "tape/phase.h"
#include "tape/program.h"

namespace millrace::tape {

struct PhaseTimes {
    std::array<double, kPhaseCount> milliseconds{};
    double total = 0;  ///< first mark to last

    [[nodiscard]] double of(Phase phase) const { return milliseconds[static_cast<std::size_t>(phase)]; }
};

/// The phases of a step, marked where one ends and the next begins; one launch where the backend can capture.
class PhaseProgram {
public:
    /// `program` is prepared, has run once and outlives this.
    static base::Result<std::unique_ptr<PhaseProgram>> create(Program& program, ops::Backend& backend, bool capture);

    void launch() noexcept;
    /// Of the newest launch; waits for it.
    base::Result<PhaseTimes> times();

private:
    explicit PhaseProgram(Program& program) : program_(program) {}
    void enqueue() noexcept;

    Program& program_;
    std::vector<Phase> phases_;  ///< of each launch of one run
    std::vector<Phase> spans_;   ///< span i lies between marks i and i + 1
    std::unique_ptr<ops::Timeline> timeline_;
    std::unique_ptr<ops::Replay> replay_;
};

/// Runs `program` once, uncaptured, with a mark after every kernel: what each took, in order.
base::Result<std::vector<KernelTime>> time_one_pass(Program& program, ops::Backend& backend);

}  // namespace millrace::tape
