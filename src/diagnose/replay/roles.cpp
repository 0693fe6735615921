#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>

#include "diagnose/replay/cures.h"

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
    for (const std::uint32_t own : calls.jobs_of(act)) {
        const Job& job = calls.jobs[own];
        const Work& work = study.timeline.work[job.first_work];
        if (facts.from == MemoryKind::kUnknown) facts.from = work.from;
        if (facts.to == MemoryKind::kUnknown) facts.to = work.to;
        bytes += study.bytes_of(job);
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
    return is_device(facts.from) && !is_device(facts.to) && facts.bytes < kPolicy.bulk_bytes;
}

/// A blocking copy: does it cost because it is slow, or because it waits?
Role role_of_copy(const Study& study, std::size_t lane, std::uint32_t act) {
    const CopyFacts facts = facts_of(study, lane, act);
    if (study.models[lane].acts[act].waits == 0) return Role::kNone;
    const bool upload = is_device(facts.to) && !is_device(facts.from);
    const bool pageable = facts.from == MemoryKind::kPageable || facts.to == MemoryKind::kPageable;
    if (!pageable) return fetches_result(study, lane, act) ? Role::kReads : Role::kSends;
    if (upload) return facts.bytes >= kPolicy.staged_bytes ? Role::kPageableCopy : Role::kSends;
    const Time waited = std::max<Time>(0, facts.begin - study.call(lane, act).begin);
    return facts.bytes >= kPolicy.bulk_bytes && facts.time > waited ? Role::kPageableCopy : Role::kReads;
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

void add_to(const Study& study, Site& site, std::size_t lane, std::uint32_t act, bool copies) {
    site.acts.resize(study.lanes.size());
    site.acts[lane].push_back(act);
    if (!study.is_steady(lane, act)) return;
    const Call& call = study.call(lane, act);
    site.calls += study.per_step(1);
    site.ms += study.per_step(ms_of(call.end - call.begin));
    if (!copies) return;
    const CopyFacts facts = facts_of(study, lane, act);
    site.bytes += study.per_step(static_cast<double>(facts.bytes));
    site.copy_ms += study.per_step(ms_of(facts.time));
}

/// Lines that spend enough time on writing to be told of: what they copy and wait for goes with it (a checkpoint fetches
/// parameters), while a line that prints a loss is about the loss, and one that has a library train does more than write.
std::unordered_set<std::uint32_t> writing_places(const Study& study) {
    std::map<std::uint32_t, double> writing, other;  // milliseconds
    study.for_each_portion([&](std::size_t lane, std::uint32_t act, const Portion& portion, double ms) {
        const bool writes = portion.doing == Doing::kWriting;
        (writes ? writing : other)[writes ? portion.place : study.host.place_of(lane, act)] += ms;
    });
    std::unordered_set<std::uint32_t> places;
    for (const auto& [place, ms] : writing)
        if (place != kNoPlace && ms >= kAny.warn * study.costed_ms() && ms >= other[place]) places.insert(place);
    return places;
}

}  // namespace

Roles::Roles(const Study& the_study) : study(the_study) {
    std::map<std::pair<std::vector<Site>*, std::uint32_t>, Site> sites;  // by list and place, filled in the order of calls
    allocator.acts.resize(study.lanes.size());
    std::unordered_set<std::uint32_t> freeing;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        auto& roles = of.emplace_back();
        for (std::uint32_t act = 0; act < study.lanes[lane].calls.size(); ++act) {
            roles.push_back(role_of(study, lane, act));
            if (roles.back() == Role::kFrees && study.is_steady(lane, act)) freeing.insert(study.host.place_of(lane, act));
        }
    }
    freeing.erase(kNoPlace);
    const auto writing = writing_places(study);
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        auto& roles = of[lane];
        for (std::uint32_t act = 0; act < roles.size(); ++act) {
            const std::uint32_t place = study.host.place_of(lane, act);
            const bool files = writing.contains(place);
            if (roles[act] == Role::kWaits) {
                const bool follows = act > 0 && study.host.place_of(lane, act - 1) == place;
                const Role before = follows ? roles[act - 1] : Role::kWaits;
                // `to(device)` copies and then waits: one cause, not two.
                if (before == Role::kPageableCopy || before == Role::kPageableWait)
                    roles[act] = Role::kPageableWait;
                else if (freeing.contains(place))
                    roles[act] = Role::kFlushes;
                else if (before == Role::kNone && fetches_result(study, lane, act - 1)) {
                    roles[act - 1] = Role::kReads;
                    add_to(study, sites[{files ? &written : &syncs, place}], lane, act - 1, true);
                }
            }
            const Role role = roles[act];
            if (role == Role::kAllocates || role == Role::kFrees || role == Role::kFlushes) {
                add_to(study, allocator, lane, act, false);
                add_to(study, sites[{role == Role::kAllocates ? &allocations : &frees, place}], lane, act, false);
            } else if (role != Role::kNone) {
                const bool pageable_one = role == Role::kPageableCopy || role == Role::kPageableWait;
                const bool copies = role != Role::kWaits && role != Role::kPageableWait;
                add_to(study, sites[{files ? &written : pageable_one ? &pageable : &syncs, place}], lane, act, copies);
            }
        }
    }
    for (auto& [key, site] : sites) {
        site.place = key.second;
        key.first->push_back(std::move(site));
    }
    for (auto* list : {&syncs, &pageable, &written, &frees, &allocations})
        std::ranges::stable_sort(*list, std::greater{}, &Site::ms);
    for (Site& site : syncs) find_together(study, of, site);
}

}  // namespace millrace::diagnose
