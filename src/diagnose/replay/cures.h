#pragma once
// Causes as groups of calls and portions of host work, and what their cure does to the model.

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/replay/study.h"

namespace millrace::diagnose {

/// Why a call of the line may be worth removing.
enum class Role : std::uint8_t {
    kNone,
    kWaits,         ///< waits for the device
    kReads,         ///< a blocking copy of a small result: when it is read later, or with others, it is not copied here
    kSends,         ///< a blocking copy of a small value: the copy stays, the waiting goes
    kPageableCopy,  ///< bulk copy of pageable memory
    kPageableWait,  ///< the wait that comes with it
    kAllocates,
    kFrees,
    kFlushes,  ///< waits in the line that frees
};

/// Calls of one line of the user's with roles that belong together; times are recorded ones, per step.
struct Site {
    std::uint32_t place = kNoPlace;
    std::vector<std::vector<std::uint32_t>> acts;  ///< per lane
    double calls = 0, ms = 0;
    double bytes = 0;                                  ///< moved by its copies
    double copy_ms = 0;                                ///< that the device took for them
    std::vector<std::vector<std::uint32_t>> together;  ///< per lane, jobs: see find_together
    double together_per_step = 0;
};

struct Roles {
    explicit Roles(const Study& the_study);

    const Study& study;
    std::vector<std::vector<Role>> of;  ///< [lane][act]
    std::vector<Site> syncs;            ///< by recorded time, most first
    std::vector<Site> pageable;
    std::vector<Site> written;  ///< waits and copies in lines that mostly write files
    Site allocator;             ///< all of it: what refills a flushed cache belongs to the flush
    std::vector<Site> frees;    ///< by line, most time first; of kFrees and kFlushes
    std::vector<Site> allocations;
};

/// Lines that read many small results in one step (a norm of every parameter): computed and read together they need a few kernels
/// instead of some for each value, and what kernels of a few microseconds take is mostly their beginning and their end. Fills
/// Site::together: short jobs that the line launched between two of its reads, where at least kPolicy.many_reads follow each
/// other within a step. Those before the first read of a step stand for all and are not among them. `roles`: [lane][act].
void find_together(const Study& study, const std::vector<std::vector<Role>>& roles, Site& site);

Cure without_waits(const Roles& roles, const Site& site);
/// No waits, and small results are not copied one by one: they stay on the device, or are computed and read together.
Cure without_reads(const Roles& roles, const Site& site);
Cure without_all_waits(const Roles& roles);
Cure with_pinned_copies(const Roles& roles, const Site& site);
/// Takes out portions of host work; `function` 0: of any.
Cure without_host_work(const Study& study, Doing doing, std::uint32_t function = 0);
/// Writing, and the waits and copies in its lines.
Cure without_writing(const Roles& roles);
Cure without_collections(const Study& study);
/// Each run of launches between two waits becomes one launch: the others cost nothing, and neither does the framework on its way
/// to them; the device pauses between queued jobs as it did.
Cure without_launches(const Roles& roles);
/// Jobs that need not run, and their launches. `jobs` per lane.
Cure without_jobs(const Study& study, std::vector<std::vector<std::uint32_t>> jobs);
/// Cures one after the other.
Cure all_of(std::vector<Cure> cures);

}  // namespace millrace::diagnose
