#include "diagnose/replay/replay.h"

#include <algorithm>
#include <numeric>

namespace millrace::diagnose {
namespace {

/// Plays the tasks that hang on acts up to `act`; they are in the order of their launches.
void play_tasks(const Model& model, std::uint32_t act, Time begin, Played& played, std::uint32_t& next) {
    for (; next < model.tasks.size(); ++next) {
        const Task& task = model.tasks[next];
        if (task.act != kNoIndex && task.act > act) return;
        // Another thread's task may hang on an act that is over.
        const Time launched =
            task.act == kNoIndex ? task.fixed : (task.act == act ? begin : played.act_begin[task.act]) + task.lag;
        Time start = launched;
        if (task.previous != kNoIndex) start = std::max(start, played.task_end[task.previous] + task.pause);
        if (task.depends != kNoIndex) start = std::max(start, played.task_end[task.depends]);
        played.task_begin[next] = start;
        played.task_end[next] = start + task.duration;
    }
}

}  // namespace

Played play(const Model& model) {
    Played played;
    for (auto* of_acts : {&played.act_begin, &played.act_end}) of_acts->resize(model.acts.size());
    for (auto* of_tasks : {&played.task_begin, &played.task_end}) of_tasks->resize(model.tasks.size());
    Time now = model.begin;
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < model.acts.size(); ++i) {
        const Act& act = model.acts[i];
        const Time ready = act.ready + (act.ready_after == kNoIndex ? 0 : played.act_begin[act.ready_after]);
        Time begin = std::max(now + act.gap, act.ready == 0 ? 0 : ready);
        played.act_begin[i] = begin;
        if (act.queues && next >= model.queue_limit) begin = std::max(begin, played.task_end[next - model.queue_limit]);
        play_tasks(model, i, begin, played, next);
        Time end = begin + act.own;
        if (act.waits > 0) {
            Time awaited = 0;
            for (std::uint32_t j = 0; j < act.waits; ++j)
                awaited = std::max(awaited, played.task_end[model.waits[act.first_wait + j]]);
            end = std::max(end, awaited + std::min<Time>(0, act.tail));
        }
        now = played.act_end[i] = std::max(begin, end + std::max<Time>(0, act.tail));
    }
    play_tasks(model, kNoIndex - 1, now, played, next);
    return played;
}

Time steps_time(const Played& played, const std::vector<Step>& steps) {
    Time sum = 0;
    for (const Step& step : steps) {
        const Time end = step.before_phase ? played.task_end[step.end_job - 1] : played.task_begin[step.end_job];
        sum += std::max<Time>(0, end - played.task_begin[step.first_job]);
    }
    return sum;
}

Time phases_time(const Played& played, const std::vector<Step>& phases) {
    Time sum = 0;
    for (const Step& phase : phases) sum += played.task_begin[phase.end_job] - played.task_end[phase.first_job - 1];
    return sum;
}

std::vector<Time> idle_before(const Played& played) {
    std::vector<std::uint32_t> order(played.task_begin.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t task) { return played.task_begin[task]; });
    std::vector<Time> idle(order.size(), 0);
    if (order.empty()) return idle;
    Time busy_until = played.task_begin[order.front()];
    for (std::uint32_t task : order) {
        idle[task] = std::max<Time>(0, played.task_begin[task] - busy_until);
        busy_until = std::max(busy_until, played.task_end[task]);
    }
    return idle;
}

}  // namespace millrace::diagnose
