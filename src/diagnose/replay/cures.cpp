#include "diagnose/replay/cures.h"

#include <algorithm>

namespace millrace::diagnose {
namespace {

/// What is left of a call that no longer waits.
void stop_waiting(Model& model, std::uint32_t act, bool call_stays) {
    Act& entry = model.acts[act];
    entry.waits = 0;
    entry.tail = 0;
    entry.own = call_stays ? model.launch_cost : 0;
}

void cut(Act& act, Time time) { act.gap -= std::min(act.gap, std::max<Time>(0, time)); }

/// A launch that need not be made, with the framework's way to it.
void drop_launch(Act& act) {
    act.own = 0;
    if (act.gap <= kPolicy.launch_gap) act.gap = 0;
}

/// Short jobs that prepare the value that `read` reads, launched since the read before; absent where more happens in between, or
/// a step begins after the job of call `before` and up to that of `read`.
std::optional<std::vector<std::uint32_t>> prepared_between(const Study& study, const Site& site, std::size_t lane,
                                                           std::uint32_t before, std::uint32_t read) {
    const Lane& calls = study.lanes[lane];
    const auto& steps = study.steps[lane].steps;
    const auto step = std::ranges::upper_bound(steps, calls.jobs_of(before).front(), {}, &Step::first_job);
    if (step != steps.end() && step->first_job <= calls.jobs_of(read).front()) return std::nullopt;
    std::vector<std::uint32_t> jobs;
    std::size_t launched = 0;
    for (std::uint32_t act = before + 1; act < read; ++act) {
        const auto launches = calls.jobs_of(act);
        if (launches.empty()) continue;
        const Call& call = study.call(lane, act);
        if (call.kind != CallKind::kLaunch && call.kind != CallKind::kSetAsync) return std::nullopt;
        // Lines of launches are taken in some steps only.
        if (call.stack != kNoStack && study.host.place_of(lane, act) != site.place) return std::nullopt;
        launched += launches.size();
        if (launched > kPolicy.kernels_per_read) return std::nullopt;
        for (const std::uint32_t job : launches)
            if (calls.jobs[job].end - calls.jobs[job].begin <= kPolicy.short_kernel) jobs.push_back(job);
    }
    return jobs;
}

/// Leaves of each such job what it works: its launch, the pause before it and its latency go.
void compute_together(const Site& site, std::size_t lane, Model& model) {
    for (std::uint32_t job : site.together[lane]) {
        Task& task = model.tasks[job];
        task.duration -= std::min(task.duration, kPolicy.kernel_latency);
        task.pause = 0;
        drop_launch(model.acts[task.act]);
    }
}

}  // namespace

void find_together(const Study& study, const std::vector<std::vector<Role>>& roles, Site& site) {
    site.together.resize(study.lanes.size());
    std::size_t steady = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const Lane& calls = study.lanes[lane];
        std::vector<std::uint32_t> run;
        std::size_t reads = 0;
        std::uint32_t before = kNoIndex;
        const auto close = [&] {
            if (reads >= kPolicy.many_reads) {
                site.together[lane].insert(site.together[lane].end(), run.begin(), run.end());
                if (study.is_steady(lane, before)) steady += run.size();
            }
            run.clear();
            reads = 0;
        };
        for (std::uint32_t act : site.acts[lane]) {
            if (roles[lane][act] != Role::kReads || calls.jobs_of(act).empty()) continue;
            if (before != kNoIndex) {
                if (const auto jobs = prepared_between(study, site, lane, before, act))
                    run.insert(run.end(), jobs->begin(), jobs->end());
                else
                    close();
            }
            before = act;
            ++reads;
        }
        close();
    }
    site.together_per_step = study.per_step(static_cast<double>(steady));
}

Cure without_waits(const Roles& roles, const Site& site) {
    return [&roles, &site](std::size_t lane, Model& model) {
        for (std::uint32_t act : site.acts[lane]) {
            stop_waiting(model, act, roles.of[lane][act] == Role::kSends);
            // The framework's way to a copy that is not made is not taken.
            if (roles.of[lane][act] == Role::kReads) cut(model.acts[act], model.operator_cost);
        }
    };
}

Cure without_reads(const Roles& roles, const Site& site) {
    return [&roles, &site, waits = without_waits(roles, site)](std::size_t lane, Model& model) {
        waits(lane, model);
        for (std::uint32_t act : site.acts[lane]) {
            if (roles.of[lane][act] != Role::kReads) continue;
            for (const std::uint32_t job : roles.study.lanes[lane].jobs_of(act))
                model.tasks[job].duration = model.tasks[job].pause = 0;
        }
        compute_together(site, lane, model);
    };
}

Cure without_all_waits(const Roles& roles) {
    return [&roles](std::size_t lane, Model& model) {
        for (const Site& site : roles.syncs) without_reads(roles, site)(lane, model);
    };
}

Cure with_pinned_copies(const Roles& roles, const Site& site) {
    return [&study = roles.study, &roles, &site](std::size_t lane, Model& model) {
        const Lane& calls = study.lanes[lane];
        for (std::uint32_t act : site.acts[lane]) {
            const bool copies = roles.of[lane][act] == Role::kPageableCopy;
            stop_waiting(model, act, copies);
            if (!copies || !study.copy_bytes_per_second) continue;
            for (const std::uint32_t job : calls.jobs_of(act)) {
                const std::uint64_t copied = study.bytes_of(calls.jobs[job]);
                const auto bytes = static_cast<double>(copied > 0 ? copied : study.call(lane, act).bytes);
                Task& task = model.tasks[job];
                task.duration = std::min(task.duration, static_cast<Time>(bytes / *study.copy_bytes_per_second * 1e9));
                task.lag = std::min(task.lag, 2 * model.launch_cost);  // nothing is staged before it begins
            }
        }
    };
}

Cure without_host_work(const Study& study, Doing doing, std::uint32_t function) {
    return [&study, doing, function](std::size_t lane, Model& model) {
        if (doing == Doing::kLoading) model.pace = 0;
        for (std::uint32_t act = 1; act < model.acts.size(); ++act) {
            double share = 0;
            for (const Portion& portion : study.host.portions(lane, act)) {
                if (portion.doing != doing || (function != 0 && study.places.function(portion.place) != function)) continue;
                // A wait for others was taken out of the host's own time when the model was made.
                if (model.acts[act].ready != 0 && portion.waiting && doing == Doing::kLoading)
                    model.acts[act].ready = 0;
                else
                    share += portion.share;
            }
            if (share > 0) cut(model.acts[act], static_cast<Time>(share * static_cast<double>(study.host_gap(lane, act))));
        }
    };
}

Cure without_writing(const Roles& roles) {
    std::vector<Cure> cures{without_host_work(roles.study, Doing::kWriting)};
    for (const Site& site : roles.written) cures.push_back(without_waits(roles, site));
    return all_of(std::move(cures));
}

Cure without_collections(const Study& study) {
    return [&study, sampled = without_host_work(study, Doing::kCollecting)](std::size_t lane, Model& model) {
        sampled(lane, model);
        for (std::uint32_t act = 1; act < model.acts.size(); ++act) cut(model.acts[act], study.host.collecting(lane, act));
    };
}

Cure without_launches(const Roles& roles) {
    return [&study = roles.study, &roles, enqueuing = without_host_work(roles.study, Doing::kEnqueuing)](std::size_t lane,
                                                                                                         Model& model) {
        const Model launched = model;
        enqueuing(lane, model);
        std::vector<char> begins(model.acts.size(), 0);
        for (const Step& step : study.steps[lane].steps)
            if (const std::uint32_t act = model.tasks[step.first_job].act; act != kNoIndex) begins[act] = 1;
        const Lane& calls = study.lanes[lane];
        bool begin = true;
        for (std::uint32_t act = 0; act < model.acts.size(); ++act) {
            Act& entry = model.acts[act];
            const auto jobs = calls.jobs_of(act);
            const Work* work = jobs.empty() ? nullptr : &study.timeline.work[calls.jobs[jobs.front()].first_work];
            // What waits or takes pageable memory cannot be captured: the host comes to it as now, and launches anew behind it.
            const bool apart =
                entry.waits > 0 || (work && (work->from == MemoryKind::kPageable || work->to == MemoryKind::kPageable));
            if (begin || begins[act] != 0 || apart) {
                entry = launched.acts[act];
                begins[act] = 1;
                begin = apart || !work;
                continue;
            }
            if (roles.of[lane][act] == Role::kNone) entry.own = 0;
        }
        for (Task& task : model.tasks) {
            if (task.act == kNoIndex || begins[task.act] != 0) continue;
            task.lag = 0;
            if (!task.queued) task.pause = std::min<Time>(task.pause, 1'000);
        }
        model.queue_limit = model.tasks.size() + 1;
    };
}

Cure without_jobs(const Study& study, std::vector<std::vector<std::uint32_t>> jobs) {
    return [&study, jobs = std::move(jobs)](std::size_t lane, Model& model) {
        for (std::uint32_t job : jobs[lane]) {
            Task& task = model.tasks[job];
            task.duration = task.pause = 0;
            if (study.lanes[lane].jobs[job].call == kNoIndex) continue;
            stop_waiting(model, task.act, false);
            drop_launch(model.acts[task.act]);
        }
    };
}

Cure all_of(std::vector<Cure> cures) {
    return [cures = std::move(cures)](std::size_t lane, Model& model) {
        for (const Cure& cure : cures) cure(lane, model);
    };
}

}  // namespace millrace::diagnose
