#pragma once
// Processes that compute together, each with a rank from 0. Collectives work on host memory; every rank calls them in the same
// order with the same sizes. mpirun and srun start the processes, MPI moves the bytes (comm/mpi), and a process alone is a group
// of one without any library.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "comm/mpi/table.h"

namespace millrace::comm {

/// Counts collectives, so that a watchdog sees one that hangs. Group counts its own; who waits for others elsewhere (on a
/// device's stream) counts here too. Any thread may call.
class Progress {
public:
    using Clock = std::chrono::steady_clock;

    void begin();
    void end();
    /// Counts for as long as it lives; of null nothing.
    class [[nodiscard]] Wait {
    public:
        explicit Wait(Progress* progress) : progress_(progress) {
            if (progress_ != nullptr) progress_->begin();
        }
        ~Wait() {
            if (progress_ != nullptr) progress_->end();
        }
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;

    private:
        Progress* const progress_;
    };

    [[nodiscard]] std::uint64_t begun() const { return begun_.load(); }
    [[nodiscard]] std::uint64_t ended() const { return ended_.load(); }
    /// When something last began or ended, while something is under way; nothing otherwise.
    [[nodiscard]] std::optional<Clock::time_point> waiting_since() const;

private:
    std::atomic<std::uint64_t> begun_ = 0;
    std::atomic<std::uint64_t> ended_ = 0;
    std::atomic<Clock::rep> changed_ = 0;
};

/// One at a time may be called, from any thread. An error leaves the group unusable: the process ends with a status other than 0
/// (mpirun and srun then end the others).
class Group {
public:
    /// Of the ranks that `table` reaches, which outlives it.
    static base::Result<std::unique_ptr<Group>> open(const MpiTable& table);
    /// The same where place and hosts are known; null: one rank alone, which receives what it sends.
    Group(const MpiTable* table, const MpiPlace& place, std::vector<std::string> hosts)
        : table_(table), place_(place), hosts_(std::move(hosts)) {}
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    /// Waits for the destructors of the other ranks, unless the group was abandoned or a collective has failed. Runs in the
    /// thread that opened the group.
    ~Group();

    [[nodiscard]] int rank() const { return place_.rank; }
    [[nodiscard]] int size() const { return place_.size; }
    /// Among the ranks of this host.
    [[nodiscard]] int local_rank() const { return place_.local_rank; }
    [[nodiscard]] int local_size() const { return place_.local_size; }
    /// The host's name per rank. [size]
    [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }
    /// "rank 3 on node7"
    [[nodiscard]] std::string name_of(int rank) const;

    /// Piece r of `send` goes to rank r, whose piece for this rank comes to place r of `receive`. Both hold size() pieces of
    /// `bytes_each`, any number of bytes, and do not overlap.
    base::Status all_to_all(const void* send, void* receive, std::size_t bytes_each);
    /// `send` of rank r comes to place r of `receive` on every rank. `send` may be this rank's own place in `receive`, else they
    /// do not overlap.
    base::Status all_gather(const void* send, void* receive, std::size_t bytes_each);
    /// `data` of rank `root` overwrites that of the others.
    base::Status broadcast(void* data, std::size_t bytes, int root);
    base::Status barrier();
    /// `data` [count] becomes the sum over all ranks, in the library's order of additions.
    base::Status all_reduce(float* data, std::size_t count);

    /// The ranks that give the same colour, in their order. Counts its collectives as this group's and is abandoned with it,
    /// which outlives it.
    base::Result<std::unique_ptr<Group>> split(int colour);

    /// `own` of every rank. [size]
    template <class T>
    base::Result<std::vector<T>> all_of(const T& own) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<T> all(static_cast<std::size_t>(size()));
        MILLRACE_TRY(all_gather(&own, all.data(), sizeof own));
        return all;
    }
    /// The texts of all ranks, of any length. [size]
    static base::Result<std::vector<std::string>> all_texts(Group& group, std::string_view text);

    /// Ok where `own` is on every rank; else an error on all, with the exit status of the first one's and on rank 0 its text.
    static base::Status agree(Group& group, const base::Status& own);

    /// A number to every other rank, without waiting for anybody. Each takes them before its group ends.
    base::Status send_note(int note);
    /// One that has come and was not yet taken. Never waits.
    base::Result<std::optional<int>> next_note();

    /// Before leaving with an error: the destructor no longer waits for the other ranks.
    void abandon() { shared_->abandoned = true; }
    [[nodiscard]] bool abandoned() const { return shared_->abandoned; }

    /// Collectives of this group and its parts so far.
    [[nodiscard]] std::uint64_t messages() const { return shared_->messages; }
    [[nodiscard]] Progress& progress() { return shared_->progress; }
    [[nodiscard]] const Progress& progress() const { return shared_->progress; }

private:
    /// Of a group and its parts.
    struct Shared {
        std::atomic<bool> abandoned = false;
        std::atomic<std::uint64_t> messages = 0;
        Progress progress;
    };
    [[nodiscard]] base::Status status_of(const char* error) const;
    template <class Call, class... Arguments>
    base::Status collective(Call MpiTable::*call, Arguments... arguments);

    const MpiTable* const table_;
    MpiPlace place_;
    int ranks_ = kAllRanks;
    std::vector<std::string> hosts_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// How this process was started.
enum class Launch {
    kAlone,  ///< one process
    kGroup,  ///< one of several that can meet: by mpirun, or by srun --mpi=pmix
    kApart,  ///< one of several by srun without PMIx: they do not know each other
};
using Environment = std::function<const char*(const char* name)>;  ///< as getenv
Launch launch_of(const Environment& environment);
/// From this process's environment. A caller that needs no group asks this before open_group().
Launch launch();

/// Makes the ranks of a host share it: each has the GPU of its local rank for its own (from before CUDA starts), and those that
/// may use the same processors count with their part of them (base::usable_processors). Collective.
base::Status share_host(Group& group);
/// What CUDA_VISIBLE_DEVICES becomes for it: one of those in `visible`, or of all `gpus` where that is null, in turns; or empty.
std::string device_of_rank(const char* visible, int gpus, int local_rank);

/// A group of this process alone.
std::unique_ptr<Group> single_group();

/// The group of the processes that were started together, or of this one where it was started alone. MPI is loaded only under
/// Launch::kGroup, once per process; kApart is an error. Stays with the thread that opens it.
base::Result<std::unique_ptr<Group>> open_group();

}  // namespace millrace::comm
