#include "diagnose/cures.h"

#include <algorithm>

#include "diagnose/read_together.h"

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

}  // namespace

Cure without_waits(const Study&, const Roles& roles, const Site& site) {
    return [&roles, &site](std::size_t lane, Model& model) {
        for (std::uint32_t act : site.acts[lane]) {
            stop_waiting(model, act, roles.of[lane][act] == Role::kSends);
            // The framework's way to a copy that is not made is not taken.
            if (roles.of[lane][act] == Role::kReads) cut(model.acts[act], model.operator_cost);
        }
    };
}

Cure without_reads(const Study& study, const Roles& roles, const Site& site) {
    return [&study, &roles, &site, waits = without_waits(study, roles, site)](std::size_t lane, Model& model) {
        waits(lane, model);
        const Lane& calls = study.lanes[lane];
        for (std::uint32_t act : site.acts[lane]) {
            if (roles.of[lane][act] != Role::kReads) continue;
            for (std::uint32_t i = calls.jobs_of_call[act]; i < calls.jobs_of_call[act + 1]; ++i) {
                Task& task = model.tasks[calls.own_jobs[i]];
                task.duration = task.pause = 0;
            }
        }
        compute_together(study, site, lane, model);
    };
}

Cure without_all_waits(const Study& study, const Roles& roles) {
    return [&study, &roles](std::size_t lane, Model& model) {
        for (const Site& site : roles.syncs) without_reads(study, roles, site)(lane, model);
    };
}

Cure with_pinned_copies(const Study& study, const Roles& roles, const Site& site) {
    return [&study, &roles, &site](std::size_t lane, Model& model) {
        const Lane& calls = study.lanes[lane];
        for (std::uint32_t act : site.acts[lane]) {
            const bool copies = roles.of[lane][act] == Role::kPageableCopy;
            stop_waiting(model, act, copies);
            if (!copies || !study.copy_bytes_per_second) continue;
            for (std::uint32_t i = calls.jobs_of_call[act]; i < calls.jobs_of_call[act + 1]; ++i) {
                const Job& job = calls.jobs[calls.own_jobs[i]];
                double bytes = static_cast<double>(study.timeline.work[job.first_work].bytes);
                for (std::uint32_t work : job.more_work) bytes += static_cast<double>(study.timeline.work[work].bytes);
                if (bytes == 0) bytes = static_cast<double>(study.call(lane, act).bytes);
                Task& task = model.tasks[calls.own_jobs[i]];
                task.duration = std::min(task.duration, static_cast<Time>(bytes / *study.copy_bytes_per_second * 1e9));
                task.lag = std::min(task.lag, 2 * model.launch_cost);  // nothing is staged before it begins
            }
        }
    };
}

Cure without_allocations(const Study&, const Roles& roles) {
    return [&roles](std::size_t lane, Model& model) {
        for (std::uint32_t act : roles.allocator.acts[lane]) stop_waiting(model, act, false);
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

Cure without_writing(const Study& study, const Roles& roles) {
    std::vector<Cure> cures{without_host_work(study, Doing::kWriting)};
    for (const Site& site : roles.written) cures.push_back(without_waits(study, roles, site));
    return all_of(std::move(cures));
}

Cure without_collections(const Study& study) {
    return [&study, sampled = without_host_work(study, Doing::kCollecting)](std::size_t lane, Model& model) {
        sampled(lane, model);
        for (std::uint32_t act = 1; act < model.acts.size(); ++act) cut(model.acts[act], study.host.collecting(lane, act));
    };
}

Cure without_launches(const Study& study, const Roles& roles) {
    return [&study, &roles, enqueuing = without_host_work(study, Doing::kEnqueuing)](std::size_t lane, Model& model) {
        const Model launched = model;
        enqueuing(lane, model);
        std::vector<char> begins(model.acts.size(), 0);
        for (const Step& step : study.steps[lane].steps)
            if (const std::uint32_t act = model.tasks[step.first_job].act; act != kNoIndex) begins[act] = 1;
        const Lane& calls = study.lanes[lane];
        bool begin = true;
        for (std::uint32_t act = 0; act < model.acts.size(); ++act) {
            Act& entry = model.acts[act];
            const std::uint32_t first = calls.jobs_of_call[act], end = calls.jobs_of_call[act + 1];
            const Work* work = first < end ? &study.timeline.work[calls.jobs[calls.own_jobs[first]].first_work] : nullptr;
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
            if (study.host_gap(lane, act) <= study.policy.launch_gap) entry.gap = 0;
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
            task.duration = 0;
            task.pause = 0;
            if (study.lanes[lane].jobs[job].call == kNoIndex) continue;
            Act& act = model.acts[task.act];
            stop_waiting(model, task.act, false);
            if (act.gap <= study.policy.launch_gap) act.gap = 0;
        }
    };
}

Cure all_of(std::vector<Cure> cures) {
    return [cures = std::move(cures)](std::size_t lane, Model& model) {
        for (const Cure& cure : cures) cure(lane, model);
    };
}

}  // namespace millrace::diagnose
