#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "diagnose/compare/statistics.h"
#include "diagnose/replay/replay.h"

namespace millrace::diagnose {
namespace {

constexpr Time kClockSlack = 5'000;    ///< host and device clocks agree that well
constexpr Time kReturnSlack = 50'000;  ///< a call that waited may be seen to return so long before what it waited for ended
constexpr Time kEntry = 2'000;         ///< into and out of a call that does nothing
constexpr Time kSlowestLaunch = 100'000;
constexpr Time kUsualLag = 5'000;          ///< from launch to begin, where none was seen
constexpr Time kRelease = 30'000;          ///< a task starts that soon after what it waited for
constexpr Time kLongCall = 100'000;        ///< that may have waited, whatever it does
constexpr std::size_t kBlockedAhead = 64;  ///< fewer launched tasks never filled a queue

class Builder {
public:
    Builder(const Timeline& timeline, const Lane& lane) : timeline_(timeline), lane_(lane) {}

    Model build() {
        model_.acts.resize(lane_.calls.size());
        model_.tasks.resize(lane_.jobs.size());
        model_.begin = lane_.calls.empty() ? lane_.begin : call(0).begin;
        by_end_.resize(lane_.jobs.size());
        std::iota(by_end_.begin(), by_end_.end(), 0u);
        std::sort(by_end_.begin(), by_end_.end(), [&](auto a, auto b) { return end_of(a) < end_of(b); });
        chain_tasks();
        set_lags();
        std::vector<Time> costs, gaps;
        for (std::size_t i = 0; i < lane_.calls.size(); ++i) {
            if (call(i).kind != CallKind::kLaunch) continue;
            costs.push_back(call(i).end - call(i).begin);
            if (i > 0) gaps.push_back(std::max<Time>(0, call(i).begin - call(i - 1).end));
        }
        // With a full queue most launches wait: only the quickest show what one takes.
        std::sort(costs.begin(), costs.end());
        model_.launch_cost = costs.empty() ? kUsualLag : std::min(costs[costs.size() / 10], kSlowestLaunch);
        model_.operator_cost = median_of(std::move(gaps), kUsualLag);
        set_acts();
        return std::move(model_);
    }

private:
    const Call& call(std::size_t act) const { return timeline_.calls[lane_.calls[act]]; }
    Time end_of(std::uint32_t job) const { return lane_.jobs[job].end; }
    /// Behind the jobs of `by_end_` that have ended by then.
    auto ended_by(Time time) const {
        return std::ranges::upper_bound(by_end_, time, {}, [&](std::uint32_t job) { return end_of(job); });
    }

    void chain_tasks() {
        std::unordered_map<std::uint32_t, std::uint32_t> last;
        std::uint32_t act = 0;
        for (std::uint32_t i = 0; i < lane_.jobs.size(); ++i) {
            const Job& job = lane_.jobs[i];
            Task& task = model_.tasks[i];
            task.duration = job.end - job.begin;
            if (auto found = last.find(job.stream); found != last.end()) task.previous = found->second;
            last[job.stream] = i;
            task.act = job.call;
            if (job.call != kNoIndex) continue;
            if (job.launched <= lane_.begin || lane_.calls.empty() || job.launched < call(0).begin) {
                task.fixed = job.begin;
                continue;
            }
            while (act + 1 < lane_.calls.size() && call(act + 1).begin <= job.launched) ++act;
            task.act = act;
        }
    }

    /// Lag and pause of each task as recorded where they can be told, else as usual.
    void set_lags() {
        std::vector<Time> lags, pauses;
        std::vector<char> queued(model_.tasks.size(), 0);
        for (std::size_t i = 0; i < model_.tasks.size(); ++i) {
            const Job& job = lane_.jobs[i];
            const Task& task = model_.tasks[i];
            if (task.act == kNoIndex) continue;
            const Time free = task.previous == kNoIndex ? 0 : lane_.jobs[task.previous].end;
            queued[i] = free > job.launched + kClockSlack ? 1 : 0;
            // The first of a stream may have waited for what was launched before the window: that is no lag.
            if (task.previous == kNoIndex) continue;
            (queued[i] ? pauses : lags).push_back(job.begin - (queued[i] ? free : job.launched));
        }
        const Time lag = std::max<Time>(0, median_of(std::move(lags), kUsualLag));
        const Time pause = median_of(std::move(pauses), Time{1'000});
        for (std::size_t i = 0; i < model_.tasks.size(); ++i) {
            const Job& job = lane_.jobs[i];
            Task& task = model_.tasks[i];
            if (task.previous != kNoIndex) task.pause = job.begin - lane_.jobs[task.previous].end;
            if (task.act == kNoIndex) continue;
            const Time launched = call(task.act).begin;
            const Time returned = job.call == kNoIndex ? job.launched : call(job.call).end;
            task.queued = task.previous != kNoIndex && lane_.jobs[task.previous].end > returned;
            if (queued[i]) {
                // Had its stream been free, it would have begun this long after its launch.
                task.lag = std::min(job.begin, job.launched + lag) - launched;
            } else {
                task.lag = job.begin - launched;
                task.pause = std::max<Time>(std::min(task.pause, pause), -task.duration);
            }
        }
    }

    /// What is launched behind a stream's wait for an event, or for the last one where its number is not known, waits for the
    /// last task before that.
    void follow_stream_wait(std::uint32_t i) {
        if (call(i).kind == CallKind::kStreamWait) {
            const auto known = events_.find(call(i).event);
            source_ = known != events_.end() ? known->second : events_.contains(0) ? events_[0] : kNoIndex;
        }
        const auto own = lane_.jobs_of(i);
        if (source_ == kNoIndex || own.empty()) return;
        const Job &source = lane_.jobs[source_], &target = lane_.jobs[own.front()];
        Task& task = model_.tasks[own.front()];
        if (task.depends == kNoIndex && source.stream != target.stream && source_ < own.front() &&
            source.end <= target.begin + kClockSlack)
            task.depends = source_;
        if (task.depends != kNoIndex && target.begin - source.end <= kRelease) {
            task.pause = std::min<Time>(task.pause, 1'000);
            task.lag = std::min(task.lag, target.launched - call(i).begin + kUsualLag);
        }
        source_ = kNoIndex;
    }

    /// The task with the latest end inside the call, among those launched before: what the call waited for, if it waited.
    std::uint32_t released_by(std::uint32_t i, Time slack) const {
        std::uint32_t best = kNoIndex;
        const Call& entry = call(i);
        for (std::uint32_t task = launched_; task-- > 0 && launched_ - task <= 2 * kPolicy.queue_limit;) {
            const Job& job = lane_.jobs[task];
            if (job.end <= entry.begin || job.end > entry.end + kReturnSlack || entry.end - job.end > slack) continue;
            if (best == kNoIndex || job.end > lane_.jobs[best].end) best = task;
        }
        return best;
    }

    std::vector<std::uint32_t> targets_of(std::uint32_t i) {
        const Call& entry = call(i);
        const Time length = entry.end - entry.begin;
        const auto own = lane_.jobs_of(i);
        std::vector<std::uint32_t> targets;
        switch (entry.kind) {
            case CallKind::kDeviceSync:
            case CallKind::kFree:
                for (const auto& [stream, task] : last_) targets.push_back(task);
                break;
            case CallKind::kStreamSync: {
                std::uint32_t stream = entry.stream;
                if (stream == 0 || !last_.contains(stream)) {
                    const std::uint32_t released = released_by(i, length), launched = lane_.jobs_of_call[i];
                    stream = released != kNoIndex ? lane_.jobs[released].stream
                             : launched > 0       ? lane_.jobs[lane_.own_jobs[launched - 1]].stream
                                                  : 0;
                }
                if (auto found = last_.find(stream); found != last_.end()) targets.push_back(found->second);
                break;
            }
            case CallKind::kEventSync: {
                if (auto known = events_.find(entry.event); entry.event != 0 && known != events_.end())
                    targets.push_back(known->second);
                else if (const std::uint32_t released = released_by(i, length); released != kNoIndex)
                    targets.push_back(released);
                break;
            }
            case CallKind::kCopy:
            case CallKind::kSet:
            case CallKind::kCopyAsync:
            case CallKind::kSetAsync:
                // Whether a copy blocks is seen, not guessed: pageable memory, sizes and directions decide, and drivers change.
                for (const std::uint32_t task : own) {
                    const Job& job = lane_.jobs[task];
                    if (length > 4 * kEntry && entry.end >= job.begin + (job.end - job.begin) / 2) targets.push_back(task);
                }
                break;
            case CallKind::kLaunch:
            case CallKind::kGraphLaunch:
            case CallKind::kEventRecord:
            case CallKind::kEventQuery:
            case CallKind::kStreamWait:
            case CallKind::kStreamQuery:
            case CallKind::kCapture: break;
            default:
                if (length > kLongCall)
                    if (const std::uint32_t released = released_by(i, std::max<Time>(4 * kClockSlack, length / 10));
                        released != kNoIndex)
                        targets.push_back(released);
        }
        // What ended after the call returned was not waited for.
        std::erase_if(targets, [&](std::uint32_t task) {
            return std::ranges::find(own, task) == own.end() && lane_.jobs[task].end > entry.end + kReturnSlack;
        });
        return targets;
    }

    void set_waits(std::uint32_t i, std::vector<std::uint32_t> targets) {
        const Call& entry = call(i);
        Act& act = model_.acts[i];
        act.own = entry.end - entry.begin;
        if (targets.empty()) return;
        act.first_wait = static_cast<std::uint32_t>(model_.waits.size());
        act.waits = static_cast<std::uint32_t>(targets.size());
        Time awaited = 0;
        for (std::uint32_t task : targets) awaited = std::max(awaited, lane_.jobs[task].end);
        model_.waits.insert(model_.waits.end(), targets.begin(), targets.end());
        const Time length = act.own;
        act.own = std::min(length, kEntry);
        // Where nothing was left to wait for, all of it is its own.
        act.tail = awaited > entry.begin + kEntry ? entry.end - awaited : length - act.own;
    }

    /// What was launched before the window began is not in it: until that is done, it is unknown how much is under way. The
    /// busiest stream tells: copies on another one begin at once.
    Time backlog_done() const {
        struct Stream {
            std::size_t jobs = 0;
            Time begin = 0;
        };
        std::unordered_map<std::uint32_t, Stream> streams;
        Stream busiest{0, lane_.begin};
        for (const Job& job : lane_.jobs) {
            Stream& stream = streams[job.stream];
            if (stream.jobs++ == 0) stream.begin = job.begin;
            if (stream.jobs > busiest.jobs) busiest = stream;
        }
        return busiest.begin;
    }

    void set_acts() {
        std::vector<std::size_t> ahead_of_blocked;
        std::vector<std::uint32_t> blocked;
        std::size_t most_ahead = 0;
        const Time known = backlog_done();
        Time before = model_.begin;
        for (std::uint32_t i = 0; i < model_.acts.size(); ++i) {
            const Call& entry = call(i);
            Act& act = model_.acts[i];
            act.gap = std::max<Time>(0, entry.begin - before);
            before = std::max(before, entry.end);
            // Own jobs of this call are launched, too, before it can wait for them.
            const std::uint32_t launched_before = launched_;
            while (launched_ < lane_.jobs.size() &&
                   (model_.tasks[launched_].act == kNoIndex || model_.tasks[launched_].act <= i)) {
                last_[lane_.jobs[launched_].stream] = launched_;
                ++launched_;
            }
            if (entry.kind == CallKind::kEventRecord && launched_ > 0) {
                const auto on = entry.stream != 0 ? last_.find(entry.stream) : last_.end();
                events_[entry.event] = events_[0] = on != last_.end() ? on->second : launched_ - 1;
            }
            follow_stream_wait(i);
            set_waits(i, targets_of(i));
            act.queues = is_launch(entry.kind) || entry.kind == CallKind::kCopyAsync || entry.kind == CallKind::kSetAsync;
            const auto done = static_cast<std::size_t>(ended_by(entry.begin) - by_end_.begin());
            const std::size_t ahead = launched_before > done ? launched_before - done : 0;
            most_ahead = std::max(most_ahead, ahead);
            const bool slow = entry.end - entry.begin > std::max<Time>(4 * kClockSlack, 8 * model_.launch_cost);
            if (!act.queues || act.waits > 0 || !slow) continue;
            const bool is_known = entry.begin >= known;
            if (is_known && ahead >= kBlockedAhead) ahead_of_blocked.push_back(ahead);
            if (!is_known || ahead >= kBlockedAhead) blocked.push_back(i);
        }
        model_.queue_limit = kPolicy.queue_limit;
        if (ahead_of_blocked.size() < 3) return;
        // Launches that take long while as many are under way as ever: the queue was full, and that is how long it is. Some
        // launches always take long at the same place of a step, but then more are under way elsewhere.
        std::sort(ahead_of_blocked.begin(), ahead_of_blocked.end());
        const std::size_t count = ahead_of_blocked.size();
        const std::size_t low = ahead_of_blocked[count / 10], middle = ahead_of_blocked[count / 2],
                          high = ahead_of_blocked[count - 1 - count / 10];
        if (low * 5 < high * 4 || middle * 20 < most_ahead * 19) return;
        model_.queue_limit = middle;
        for (std::uint32_t i : blocked) model_.acts[i].own = std::min(model_.acts[i].own, model_.launch_cost);
    }

    const Timeline& timeline_;
    const Lane& lane_;
    Model model_;
    std::vector<std::uint32_t> by_end_;                        ///< all jobs
    std::map<std::uint32_t, std::uint32_t> last_;              ///< stream: its last task so far
    std::unordered_map<std::uint64_t, std::uint32_t> events_;  ///< event: last task before it; 0: the newest
    std::uint32_t source_ = kNoIndex;                          ///< what the next task waits for
    std::uint32_t launched_ = 0;                               ///< tasks so far
};

}  // namespace

Model build_model(const Timeline& timeline, const Lane& lane) { return Builder(timeline, lane).build(); }

}  // namespace millrace::diagnose
