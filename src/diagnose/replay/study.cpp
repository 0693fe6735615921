#include "diagnose/replay/study.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "diagnose/compare/statistics.h"
#include "diagnose/reading/machine_rows.h"
#include "record/pulse_blocks.h"

namespace millrace::diagnose {
namespace {

constexpr Time kHighestCallCost = 25'000;  ///< recording adds 1 to 10 us to a call, and up to 24 where it walks the stack (JAX)
constexpr std::size_t kFewGpuSamples = 3;
constexpr Time kStarved = 1'000'000;  ///< a queue that has a batch gives it sooner

std::vector<Lane> lanes_of(const Timeline& timeline, const Launcher& launcher) {
    const std::vector<Window> windows = windows_of(timeline, launcher);
    const std::size_t count = std::min(windows.size(), kPolicy.windows);
    std::vector<Lane> lanes;
    for (std::size_t i = 0; i < count; ++i) {
        const Window& window = windows[i * windows.size() / count];
        lanes.push_back(read_lane(timeline, launcher, window.begin, window.end));
    }
    return lanes;
}

std::vector<WindowSteps> steps_of(const Timeline& timeline, const Launcher& launcher, const std::vector<Lane>& lanes) {
    std::vector<WindowSteps> steps;
    for (const Lane& lane : lanes) steps.push_back(find_steps(timeline, launcher, lane, steps.empty()));
    return steps;
}

/// Of host work: shorter stretches are nothing to tell of.
Time least_told(const std::vector<WindowSteps>& windows) {
    std::vector<Time> lengths;
    for (const WindowSteps& window : windows)
        for (const Step& step : window.steps) lengths.push_back(step.end - step.begin);
    return lengths.empty() ? 0 : static_cast<Time>(kAny.warn * static_cast<double>(median_of(std::move(lengths))));
}

/// Link speed as pinned copies of this program show it, else as the link allows.
std::optional<double> copy_speed(const Timeline& timeline, bool& assumed) {
    double best = 0;
    for (const Work& work : timeline.work) {
        const bool pinned = work.from == MemoryKind::kPinned || work.to == MemoryKind::kPinned;
        if (work.kind != WorkKind::kCopy || !pinned || work.bytes < kPolicy.bulk_bytes || work.end <= work.begin) continue;
        best = std::max(best, static_cast<double>(work.bytes) / static_cast<double>(work.end - work.begin) * 1e9);
    }
    assumed = best <= 0 && timeline.link_is_assumed;
    if (best <= 0) best = timeline.link_bytes_per_second.value_or(0) * kPolicy.link_efficiency;
    return best > 0 ? std::optional(best) : std::nullopt;
}

/// A batch that workers make is there when it is there, however early the host asks for it: as long after the same place in the
/// step before as now, since they make one after the other and wait where enough lie ready.
void wait_for_batches(const Study& study, std::size_t lane, Model& model) {
    const std::vector<Step>& steps = study.steps[lane].steps;
    auto next = steps.begin();
    std::uint32_t begun = kNoIndex, before = kNoIndex;  // acts that began this step and the one before
    for (std::uint32_t act = 1; act < model.acts.size(); ++act) {
        for (; next != steps.end(); ++next) {
            const std::uint32_t begins = model.tasks[next->first_job].act;
            if (begins == kNoIndex) continue;
            if (begins >= act) break;
            before = std::exchange(begun, begins);
        }
        double share = 0;
        std::size_t samples = 0;
        for (const Portion& portion : study.host.portions(lane, act))
            if (portion.doing == Doing::kLoading && portion.waiting) share += portion.share, samples += portion.samples;
        const Time gap = study.host_gap(lane, act);
        if (share < 0.5 || gap < kStarved || (samples < kFewGpuSamples && gap < 5 * kStarved)) continue;
        model.acts[act].gap -= std::min(model.acts[act].gap, static_cast<Time>(share * static_cast<double>(gap)));
        model.acts[act].ready = study.call(lane, act).begin;
        if (before == kNoIndex) continue;
        model.acts[act].ready_after = before + (act - begun);
        model.acts[act].ready -= study.call(lane, model.acts[act].ready_after).begin;
    }
}

double mean_ms(const Study& study, const std::vector<Model>& models, bool with_evaluations = false) {
    Time sum = 0;
    for (std::size_t i = 0; i < models.size(); ++i) {
        const Played played = play(models[i]);
        sum += steps_time(played, study.steps[i].steps);
        if (with_evaluations) sum += phases_time(played, study.steps[i].evaluations);
    }
    return study.step_count == 0 ? 0 : study.per_step(ms_of(sum));
}

bool is_kernel(const Study& study, std::size_t lane, std::size_t task) {
    return study.timeline.work[study.lanes[lane].jobs[task].first_work].kind == WorkKind::kKernel;
}

/// Time of the steps' kernels, per step.
double busy_ms(const Study& study, const std::vector<Model>& models) {
    double sum = 0;
    study.for_each_job(&WindowSteps::steps, [&](std::size_t lane, std::uint32_t task, const Job&) {
        if (is_kernel(study, lane, task)) sum += ms_of(models[lane].tasks[task].duration);
    });
    return study.per_step(sum);
}

std::vector<Model> with_slower_kernels(const Study& study, std::vector<Model> models, double factor) {
    for (std::size_t lane = 0; lane < models.size(); ++lane)
        for (std::size_t task = 0; task < models[lane].tasks.size(); ++task)
            if (Time& duration = models[lane].tasks[task].duration; is_kernel(study, lane, task))
                duration = static_cast<Time>(static_cast<double>(duration) * factor);
    return models;
}

/// Drivers give means over a second, so the first and the last are too low, and short runs have no others: the highest counts
/// there.
std::optional<double> power_of(std::span<const MachineSample> samples, double busy_share) {
    std::vector<double> inside;
    double most = 0, limit = 0;
    for (const MachineSample& sample : samples) {
        if (sample.power_limit_watts) limit = std::max(limit, *sample.power_limit_watts);
        if (!sample.power_watts) continue;
        most = std::max(most, *sample.power_watts);
        inside.push_back(*sample.power_watts);
    }
    if (inside.size() >= kFewGpuSamples) {
        const auto upper = inside.begin() + static_cast<std::ptrdiff_t>(inside.size() * 3 / 4);
        std::nth_element(inside.begin(), upper, inside.end());
        most = *upper;
    }
    const double idle = kPolicy.idle_power * limit;
    if (limit <= 0 || most <= idle || busy_share <= 0) return std::nullopt;
    return (std::min(most, limit) - idle) / std::min(1.0, busy_share) / (limit - idle);
}

/// Takes `cost` from each call and the host work before it: what recording added.
std::vector<Model> quickened(std::vector<Model> models, Time cost) {
    for (Model& model : models)
        for (Act& act : model.acts) {
            const Time from_gap = std::min(act.gap, cost);
            act.gap -= from_gap;
            act.own -= std::min(act.own, cost - from_gap);
        }
    return models;
}

/// What recording added to each call: as much as makes the model that many times as fast, as the program is outside of windows;
/// where blocks there hold evaluations, the model with these. Where that would be more than recording adds, something else
/// differs (the device, or a loader, sets the pace), and nothing is taken off.
Time recording_cost(const Study& study) {
    const bool all = study.pace_has_evaluation;
    const auto length = [&](Time cost) { return mean_ms(study, quickened(study.models, cost), all); };
    const double now = mean_ms(study, study.models, all);
    // An evaluation's replay may be off by more than recording costs: what counts is how much faster the program is.
    const double goal = all ? now * study.pace().value_or(1) : study.undisturbed_ms.value_or(now);
    if (now <= goal * 1.003 || length(kHighestCallCost) > goal) return 0;
    Time low = 0, high = kHighestCallCost;
    while (high - low > 50) {
        const Time middle = (low + high) / 2;
        (length(middle) > goal ? low : high) = middle;
    }
    return high;
}

}  // namespace

Study::Study(const Timeline& the_timeline, const Launcher& the_launcher)
    : timeline(the_timeline),
      launcher(the_launcher),
      places(the_timeline),
      lanes(lanes_of(the_timeline, the_launcher)),
      steps(steps_of(the_timeline, the_launcher, lanes)),
      host(the_timeline, the_launcher, places, lanes, least_told(steps)) {
    leave_out_shapeless();
    for (const WindowSteps& window : steps)
        for (const Step& step : window.steps) lengths.push_back(step.end - step.begin);
    step_count = lengths.size();
    recorded_ms = step_count > 0 ? per_step(ms_of(std::accumulate(lengths.begin(), lengths.end(), Time{0}))) : 0;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
        const std::vector<Step>& found = steps[i].steps;
        const auto first_call = [&](std::uint32_t job) {
            const auto begin = [&](std::uint32_t index) { return timeline.calls[index].begin; };
            const auto at = std::ranges::lower_bound(lanes[i].calls, lanes[i].jobs[job].launched, {}, begin);
            return static_cast<std::uint32_t>(at - lanes[i].calls.begin());
        };
        steady.emplace_back(0, 0);
        if (!found.empty()) steady.back() = {first_call(found.front().first_job), first_call(found.back().end_job)};
        models.push_back(build_model(timeline, lanes[i]));
        wait_for_batches(*this, i, models.back());
    }
    if (step_count == 0) return;
    base_ms = replayed_ms = mean_ms(*this, models);
    replay_error = recorded_ms > 0 ? std::abs(base_ms - recorded_ms) / recorded_ms : 0;
    if (has_profiler()) remove_profiler();
    copy_bytes_per_second = copy_speed(timeline, copy_speed_is_assumed);
    blocks = in_training_steps(*this);
    undisturbed_ms = undisturbed_step_ms(blocks);
    take_evaluation_off();
    remove_recording_cost();
    unseen = unseen_loading(*this);
    if (timeline.source == Source::kRecording) remove_presence();
    // Power is sampled all the time, most of which lies outside of windows, where steps are shorter and the GPU is busier.
    if (base_ms > 0) power = power_of(since_recorded(timeline), busy_ms(*this, models) / base_ms);
    if (const auto busy = busy_share_of_loader(*this))
        for (Model& model : models)
            model.pace = static_cast<Time>(std::min(*busy * (recorded_ms + unseen_loading_ms()), base_ms) * 1e6);
}

/// Where no step returns as it does in others: start-up would pass for a very long one. Nor do an evaluation's batches count,
/// where other windows show training.
void Study::leave_out_shapeless() {
    const auto returns = [](const WindowSteps& window) { return !window.steps.empty() && window.source != StepSource::kWindow; };
    const bool some = std::ranges::any_of(steps, returns), training = std::ranges::any_of(steps, &WindowSteps::trains);
    for (WindowSteps& window : steps) {
        const bool evaluates = training && !window.trains && window.source != StepSource::kNone;
        if (evaluates || (some && window.source == StepSource::kWindow)) window = {}, ++shapeless;
    }
}

void Study::take_evaluation_off() {
    double phases = 0;
    for (const WindowSteps& window : steps)
        for (const Step& phase : window.evaluations) ++phases, evaluation_ms += per_step(ms_of(phase.end - phase.begin));
    if (!undisturbed_ms || evaluation_ms <= kPolicy.closes * recorded_ms) return;
    const double whole = recorded_ms + evaluation_ms, apart = whole * static_cast<double>(step_count) / phases;
    std::vector<Time> counted_in;
    for (const Block& block : blocks) counted_in.push_back(block.end - block.begin);
    if (apart > ms_of(median_of(std::move(counted_in)))) return;  // most blocks hold none, and those count
    pace_has_evaluation = true;
    // Where calls of the evaluation were counted as steps it is unknown how many.
    const double share = *undisturbed_ms / whole;
    undisturbed_ms.reset();
    if (share >= kPolicy.fastest_pace && share <= kPolicy.slowest_pace)
        undisturbed_ms = share * recorded_ms, undisturbed_evaluation_ms = share * evaluation_ms;
}

/// What another profiler did between the calls is no part of the program, nor is what it took to note operators and functions.
void Study::remove_profiler() {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const auto taken = covered_before(timeline, launcher, lanes[lane], timeline.profiler_work);
        for (std::uint32_t act = 0; act < models[lane].acts.size(); ++act) {
            Time& gap = models[lane].acts[act].gap;
            gap -= std::min(taken[act], gap);
            if (act == 0 || !is_steady(lane, act)) continue;
            gap = without_notes(gap, call(lane, act));
        }
    }
    models = quickened(std::move(models), kPolicy.profiler_call);
    base_ms = mean_ms(*this, models);
}

void Study::remove_recording_cost() {
    if (!undisturbed_ms || *undisturbed_ms >= (pace_has_evaluation ? recorded_ms : base_ms)) return;
    if (is_shapeless()) return;
    call_cost = recording_cost(*this);
    if (call_cost == 0) return;
    const double step_before = base_ms, evaluation_before = replayed_evaluation_ms();
    models = quickened(std::move(models), call_cost);
    base_ms = mean_ms(*this, models);
    if (!undisturbed_evaluation_ms || step_before <= 0 || evaluation_before <= 0) return;
    // Recording costs those more that launch more. What launches do not explain, such as higher clocks, quickens both alike.
    const double whole = *undisturbed_ms + *undisturbed_evaluation_ms, step = recorded_ms * base_ms / step_before;
    const double evaluation = evaluation_ms * replayed_evaluation_ms() / evaluation_before;
    undisturbed_ms = whole * step / (step + evaluation);
    undisturbed_evaluation_ms = whole - *undisturbed_ms;
}

/// Once it has made records of the device, CUPTI slows down each launch, in windows and outside of them.
void Study::remove_presence() {
    const Time each = static_cast<Time>(timeline.presence_share * record::kWaitingCostNs);
    for (std::size_t lane = 0; lane < models.size(); ++lane)
        for (std::uint32_t act = 0; act < models[lane].acts.size(); ++act)
            if (is_launch(call(lane, act).kind)) models[lane].acts[act].own -= std::min(each, models[lane].acts[act].own);
    const double before = base_ms;
    base_ms = mean_ms(*this, models);
    if (before <= 0 || !undisturbed_ms) return;
    presence_ms = *undisturbed_ms * std::clamp(1 - base_ms / before, 0.0, 1.0);
    *undisturbed_ms -= presence_ms;
    if (undisturbed_evaluation_ms) *undisturbed_evaluation_ms *= base_ms / before;
}

double Study::replayed_evaluation_ms() const { return mean_ms(*this, models, true) - base_ms; }

bool Study::trains_at(Time time) const {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const auto begun = [&](const Step& step) { return host_span(lane, step).first <= time; };
        const auto next = std::ranges::partition_point(steps[lane].steps, begun);
        if (next != steps[lane].steps.begin() && time < host_span(lane, *std::prev(next)).second) return true;
    }
    return false;
}

std::optional<double> Study::pace() const {
    if (!undisturbed_ms || recorded_ms <= 0) return std::nullopt;
    if (!undisturbed_evaluation_ms) return *undisturbed_ms / recorded_ms;
    return (*undisturbed_ms + *undisturbed_evaluation_ms) / (recorded_ms + evaluation_ms);
}

Time Study::host_gap(std::size_t lane, std::uint32_t act) const {
    if (act == 0) return 0;
    const Time stretch = call(lane, act).begin - call(lane, act - 1).end - host.collecting(lane, act);
    return without_notes(std::max<Time>(0, stretch), call(lane, act));
}

double Study::step_with(std::span<const Cure* const> cures) const {
    std::vector<Model> changed = models;
    for (std::size_t i = 0; i < changed.size(); ++i)
        for (const Cure* cure : cures) (*cure)(i, changed[i]);
    double step = mean_ms(*this, changed);
    if (!changed.empty()) step = std::max(step, ms_of(changed.front().pace));
    if (!power || step <= 0) return step;
    // A GPU that idles less takes more power; at its limit it slows down until the power fits.
    const double busy = busy_ms(*this, changed);
    double slower = 1;
    for (int round = 0; round < 3; ++round) {
        // Dynamic power goes with the busy share and with a power of the kernels' speed.
        const double wanted = *power * std::min(1.0, slower * busy / step);
        if (wanted <= 1) break;
        slower = std::pow(wanted, 1 / kPolicy.power_exponent);
        step = std::max(step, mean_ms(*this, with_slower_kernels(*this, changed, slower)));
    }
    return step;
}

}  // namespace millrace::diagnose
