#include "tape/instrument.h"

#include <algorithm>
#include <optional>

#include "ops/fused.h"

namespace millrace::tape {
namespace {

int component_of(const std::string& layer, Phase phase, const std::vector<std::string>& components) {
    if (phase == Phase::data || phase == Phase::optimizer) return -1;
    const auto at =
        std::find_if(components.begin(), components.end(), [&](const std::string& prefix) { return layer.starts_with(prefix); });
    return at == components.end() ? -1 : static_cast<int>(at - components.begin());
}

}  // namespace

std::vector<Phase> phases_of(std::span<const ops::Record> records) {
    std::vector<Phase> phases;
    phases.reserve(records.size());
    Phase shared = Phase::forward;
    for (const ops::Record& record : records) {
        std::optional<Phase> own = ops::phase_of(record);
        if (own == Phase::forward && shared == Phase::backward) own = Phase::backward;  // computed again in the backward pass
        if (own == Phase::backward || own == Phase::optimizer) shared = *own;
        if (own == Phase::data) shared = Phase::forward;  // the next micro-batch
        phases.push_back(own.value_or(shared));
    }
    return phases;
}

base::Result<std::unique_ptr<PhaseProgram>> PhaseProgram::create(Program& program, ops::Backend& backend, bool capture,
                                                                 const std::vector<std::string>& components) {
    std::unique_ptr<PhaseProgram> made(new PhaseProgram(program));
    made->components_ = components.size();
    const std::vector<Phase> by_record = phases_of(program.records());
    program.for_each_launch([&](ops::Kernel& kernel) {
        // A kernel that covers several records counts as the last of them, as a fused record does.
        const std::size_t last = kernel.first + kernel.count - 1;
        const Owner owner{by_record[last], component_of(program.records()[last].layer, by_record[last], components)};
        if (made->spans_.empty() || made->spans_.back() != owner) made->spans_.push_back(owner);
        made->owners_.push_back(owner);
    });
    MILLRACE_SET(made->timeline_, backend.make_timeline(made->spans_.size() + 1));
    if (capture && backend.can_capture()) MILLRACE_SET(made->replay_, backend.capture([&] { made->enqueue(); }));
    return made;
}

void PhaseProgram::enqueue() noexcept {
    std::size_t launch = 0, span = 0;
    timeline_->mark(0);
    program_.for_each_launch([&](ops::Kernel& kernel) {
        if (owners_[launch] != spans_[span]) timeline_->mark(++span);
        kernel.run();
        ++launch;
    });
    timeline_->mark(spans_.size());
}

void PhaseProgram::launch() noexcept {
    if (replay_)
        replay_->launch();
    else
        enqueue();
}

base::Result<PhaseTimes> PhaseProgram::times() {
    PhaseTimes times;
    MILLRACE_SET(times.total, timeline_->milliseconds(0, spans_.size()));
    times.components.assign(components_, 0);
    for (std::size_t i = 0; i < spans_.size(); ++i) {
        MILLRACE_LET(span, timeline_->milliseconds(i, i + 1));
        times.milliseconds[static_cast<std::size_t>(spans_[i].phase)] += span;
        if (spans_[i].component >= 0) times.components[static_cast<std::size_t>(spans_[i].component)] += span;
    }
    return times;
}

base::Result<std::unique_ptr<LaunchPair>> LaunchPair::create(Program& program, ops::Backend& backend, bool capture) {
    std::unique_ptr<LaunchPair> made(new LaunchPair(program));
    MILLRACE_SET(made->timeline_, backend.make_timeline(4));
    if (!capture || !backend.can_capture()) return made;
    // Two replays: the marks of one would be overwritten by its second launch.
    for (std::size_t which = 0; which < 2; ++which)
        MILLRACE_SET(made->replays_[which], backend.capture([&] { made->enqueue(which); }));
    return made;
}

void LaunchPair::enqueue(std::size_t which) noexcept {
    timeline_->mark(2 * which);
    program_.for_each_launch([](ops::Kernel& kernel) { kernel.run(); });
    timeline_->mark(2 * which + 1);
}

void LaunchPair::launch() noexcept {
    for (std::size_t which = 0; which < 2; ++which) {
        if (replays_[which])
            replays_[which]->launch();
        else
            enqueue(which);
    }
}

base::Result<LaunchPair::Gap> LaunchPair::gap() {
    MILLRACE_LET(period, timeline_->milliseconds(0, 2));
    MILLRACE_LET(idle, timeline_->milliseconds(1, 2));
    return Gap{idle, period};
}

base::Result<std::vector<KernelTime>> time_one_pass(Program& program, ops::Backend& backend) {
    std::vector<KernelTime> times;
    program.for_each_launch([&](ops::Kernel& kernel) { times.push_back({program.text_of(kernel), 0}); });
    MILLRACE_LET(timeline, backend.make_timeline(times.size() + 1));
    timeline->hold();
    timeline->mark(0);
    std::size_t done = 0;
    program.for_each_launch([&](ops::Kernel& kernel) {
        kernel.run();
        timeline->mark(++done);
    });
    timeline->release();
    for (std::size_t i = 0; i < times.size(); ++i) {
        MILLRACE_LET(milliseconds, timeline->milliseconds(i, i + 1));
        times[i].microseconds = 1e3 * milliseconds;
    }
    return times;
}

}  // namespace millrace::tape
