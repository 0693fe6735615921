#include <algorithm>
#include <map>
#include <unordered_set>

#include "diagnose/cures.h"

namespace millrace::diagnose {
namespace {

bool is_device(MemoryKind kind) { return kind == MemoryKind::kDevice || kind == MemoryKind::kArray; }

struct CopyFacts {
    MemoryKind from = MemoryKind::kUnknown, to = MemoryKind::kUnknown;
    std::uint64_t bytes = 0;
    Time time = 0, begin = 0;
};

CopyFacts facts_of(const Study& study, std::size_t lane, std::uint32_t act) {
    const Call& call = study.call(lane, act);
    const Lane& calls = study.lanes[lane];
    CopyFacts facts{call.from, call.to, call.bytes, 0, call.end};
    std::uint64_t bytes = 0;
    for (std::uint32_t i = calls.jobs_of_call[act]; i < calls.jobs_of_call[act + 1]; ++i) {
        const Job& job = calls.jobs[calls.own_jobs[i]];
        const Work& work = study.timeline.work[job.first_work];
        if (facts.from == MemoryKind::kUnknown) facts.from = work.from;
        if (facts.to == MemoryKind::kUnknown) facts.to = work.to;
        bytes += work.bytes;
        for (std::uint32_t more : job.more_work) bytes += study.timeline.work[more].bytes;
        facts.time += job.end - job.begin;
        facts.begin = std::min(facts.begin, job.begin);
    }
    if (bytes > 0) facts.bytes = bytes;
    return facts;
}

/// A copy of a small result that does not block by itself; a wait follows.
bool fetches_result(const Study& study, std::size_t lane, std::uint32_t act) {
    const CallKind kind = study.call(lane, act).kind;
    if (kind != CallKind::kCopy && kind != CallKind::kCopyAsync) return false;
    const CopyFacts facts = facts_of(study, lane, act);
    return is_device(facts.from) && !is_device(facts.to) && facts.bytes < study.policy.bulk_bytes;
}

/// A blocking copy: does it cost because it is slow, or because it waits?
Role role_of_copy(const Study& study, std::size_t lane, std::uint32_t act) {
    const CopyFacts facts = facts_of(study, lane, act);
    if (study.models[lane].acts[act].waits == 0) return Role::kNone;
    const bool upload = is_device(facts.to) && !is_device(facts.from);
    const bool pageable = facts.from == MemoryKind::kPageable || facts.to == MemoryKind::kPageable;
    if (!pageable) return fetches_result(study, lane, act) ? Role::kReads : Role::kSends;
    if (upload) return facts.bytes >= study.policy.staged_bytes ? Role::kPageableCopy : Role::kSends;
    const Time waited = std::max<Time>(0, facts.begin - study.call(lane, act).begin);
    return facts.bytes >= study.policy.bulk_bytes && facts.time > waited ? Role::kPageableCopy : Role::kReads;
}

Role role_of(const Study& study, std::size_t lane, std::uint32_t act) {
    switch (study.call(lane, act).kind) {
        case CallKind::kDeviceSync:
        case CallKind::kStreamSync:
        case CallKind::kEventSync: return Role::kWaits;
        case CallKind::kCopy:
        case CallKind::kCopyAsync: return role_of_copy(study, lane, act);
        case CallKind::kAlloc:
        case CallKind::kHostAlloc:
        case CallKind::kHostRegister: return Role::kAllocates;
        case CallKind::kFree:
        case CallKind::kHostFree: return Role::kFrees;
        default: return Role::kNone;
    }
}

/// Sites by place, filled in the order of calls.
class Sites {
public:
    explicit Sites(const Study& study) : study_(study) {}

    void add(std::size_t lane, std::uint32_t act, std::uint32_t place, bool copies) {
        auto [found, fresh] = sites_.try_emplace(place);
        if (fresh) {
            found->second.place = place;
            found->second.acts.resize(study_.lanes.size());
        }
        enter(found->second, lane, act, copies);
    }

    void enter(Site& site, std::size_t lane, std::uint32_t act, bool copies) const {
        site.acts[lane].push_back(act);
        if (!study_.is_steady(lane, act)) return;
        const auto steps = static_cast<double>(study_.step_count);
        const Call& call = study_.call(lane, act);
        site.calls += 1 / steps;
        site.ms += static_cast<double>(call.end - call.begin) * 1e-6 / steps;
        if (!copies) return;
        const CopyFacts facts = facts_of(study_, lane, act);
        site.bytes += static_cast<double>(facts.bytes) / steps;
        site.copy_ms += static_cast<double>(facts.time) * 1e-6 / steps;
        (is_device(facts.to) && !is_device(facts.from) ? site.upload : site.download) = true;
    }

    std::vector<Site> take() {
        std::vector<Site> sites;
        for (auto& [place, site] : sites_) sites.push_back(std::move(site));
        std::stable_sort(sites.begin(), sites.end(), [](const Site& a, const Site& b) { return a.ms > b.ms; });
        return sites;
    }

private:
    const Study& study_;
    std::map<std::uint32_t, Site> sites_;
};

/// Lines that spend enough time on writing to be told of: what they copy and wait for goes with it (a checkpoint fetches
/// parameters), while a line that prints a loss is about the loss.
std::unordered_set<std::uint32_t> writing_places(const Study& study) {
    std::map<std::uint32_t, double> ms;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane)
        for (std::uint32_t act = std::max<std::uint32_t>(1, study.steady[lane].first); act < study.steady[lane].second; ++act)
            for (const Portion& portion : study.host.portions(lane, act))
                if (portion.doing == Doing::kWriting && portion.place != kNoPlace)
                    ms[portion.place] += portion.share * static_cast<double>(study.host_gap(lane, act)) * 1e-6;
    std::unordered_set<std::uint32_t> places;
    for (const auto& [place, sum] : ms)
        if (sum / static_cast<double>(study.step_count) >= study.policy.file_output.warn * study.costed_ms())
            places.insert(place);
    return places;
}

}  // namespace

Roles::Roles(const Study& study) {
    Sites all_syncs(study), all_pageable(study), all_frees(study), all_allocations(study), all_written(study);
    allocator.acts.resize(study.lanes.size());
    std::unordered_set<std::uint32_t> freeing;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        auto& roles = of.emplace_back(study.lanes[lane].calls.size(), Role::kNone);
        for (std::uint32_t act = 0; act < roles.size(); ++act) {
            roles[act] = role_of(study, lane, act);
            if (roles[act] == Role::kFrees && study.is_steady(lane, act)) freeing.insert(study.host.place_of(lane, act));
        }
    }
    freeing.erase(kNoPlace);
    const auto writing = writing_places(study);
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        auto& roles = of[lane];
        for (std::uint32_t act = 0; act < roles.size(); ++act) {
            const std::uint32_t place = study.host.place_of(lane, act);
            if (roles[act] == Role::kWaits) {
                // `to(device)` copies and then waits: one cause, not two.
                if (act > 0 && (roles[act - 1] == Role::kPageableCopy || roles[act - 1] == Role::kPageableWait) &&
                    study.host.place_of(lane, act - 1) == place)
                    roles[act] = Role::kPageableWait;
                else if (freeing.contains(place))
                    roles[act] = Role::kFlushes;
                else if (act > 0 && roles[act - 1] == Role::kNone && study.host.place_of(lane, act - 1) == place &&
                         fetches_result(study, lane, act - 1)) {
                    roles[act - 1] = Role::kReads;
                    (writing.contains(place) ? all_written : all_syncs).add(lane, act - 1, place, true);
                }
            }
            switch (roles[act]) {
                case Role::kNone: break;
                case Role::kWaits:
                case Role::kReads:
                case Role::kSends:
                    (writing.contains(place) ? all_written : all_syncs).add(lane, act, place, roles[act] != Role::kWaits);
                    break;
                case Role::kPageableCopy:
                case Role::kPageableWait:
                    (writing.contains(place) ? all_written : all_pageable)
                        .add(lane, act, place, roles[act] == Role::kPageableCopy);
                    break;
                case Role::kAllocates:
                case Role::kFrees:
                case Role::kFlushes:
                    all_syncs.enter(allocator, lane, act, false);
                    (roles[act] == Role::kAllocates ? all_allocations : all_frees).add(lane, act, place, false);
            }
        }
    }
    syncs = all_syncs.take();
    for (Site& site : syncs) find_together(study, of, site);
    pageable = all_pageable.take();
    written = all_written.take();
    frees = all_frees.take();
    allocations = all_allocations.take();
}

}  // namespace millrace::diagnose
