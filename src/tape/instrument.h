#pragma once
// A program once more, with marks between its parts. The program itself stays as it is: what is timed here is a second one over
// the same kernels and memory, run now and then in the place of an ordinary step. It leaves the same bits behind.

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "tape/program.h"

namespace millrace::tape {

using ops::Phase;
constexpr int kPhaseCount = 5;
constexpr std::array<const char*, kPhaseCount> kPhaseNames{"data", "forward", "loss", "backward", "optimizer"};

/// The phase of each record of a program. Operators that serve in several (sums, copies, fills) belong to the forward pass before
/// the first operator that only the backward pass has, to the backward pass from there to the update; so do operators of the
/// forward pass that run again in the backward pass.
std::vector<Phase> phases_of(std::span<const ops::Record> records);

struct PhaseTimes {
    std::array<double, kPhaseCount> milliseconds{};
    double total = 0;                ///< first mark to last
    std::vector<double> components;  ///< of each component asked for, its forward pass, loss and backward pass

    [[nodiscard]] double of(Phase phase) const { return milliseconds[static_cast<std::size_t>(phase)]; }
};

/// The phases of a step, marked where one ends and the next begins; one launch where the backend can capture.
class PhaseProgram {
public:
    /// `program` is prepared, has run once and outlives this. A record belongs to the first of `components` that its layer's name
    /// begins with.
    static base::Result<std::unique_ptr<PhaseProgram>> create(Program& program, ops::Backend& backend, bool capture,
                                                              const std::vector<std::string>& components = {});

    void launch() noexcept;
    /// Of the newest launch; waits for it.
    base::Result<PhaseTimes> times();

private:
    /// Whose time it is: a phase and a component of the model, or none.
    struct Owner {
        Phase phase = Phase::data;
        int component = -1;
        bool operator==(const Owner&) const = default;
    };
    explicit PhaseProgram(Program& program) : program_(program) {}
    void enqueue() noexcept;

    Program& program_;
    std::vector<Owner> owners_;  ///< of each launch of one run
    std::vector<Owner> spans_;   ///< span i lies between marks i and i + 1
    std::size_t components_ = 0;
    std::unique_ptr<ops::Timeline> timeline_;
    std::unique_ptr<ops::Replay> replay_;
};

/// Two launches of a program, one behind the other, with a mark where each begins and ends on the device.
class LaunchPair {
public:
    /// `program` is prepared, has run once and outlives this.
    static base::Result<std::unique_ptr<LaunchPair>> create(Program& program, ops::Backend& backend, bool capture);

    /// Both; among other launches they see the queue that those see.
    void launch() noexcept;
    struct Gap {
        double idle = 0;    ///< milliseconds from the end of the first to the beginning of the second
        double period = 0;  ///< from beginning to beginning
    };
    /// Of the newest launch(); waits for it.
    base::Result<Gap> gap();

private:
    explicit LaunchPair(Program& program) : program_(program) {}
    void enqueue(std::size_t which) noexcept;

    Program& program_;
    std::unique_ptr<ops::Timeline> timeline_;  ///< begin and end of the first, begin and end of the second
    std::array<std::unique_ptr<ops::Replay>, 2> replays_;
};

/// Runs `program` once, uncaptured, with a mark after every kernel: what each took, in order.
base::Result<std::vector<KernelTime>> time_one_pass(Program& program, ops::Backend& backend);

}  // namespace millrace::tape
