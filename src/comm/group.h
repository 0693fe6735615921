#pragma once
// Processes that compute together, each with a rank from 0. Collectives work on host memory; every rank calls them in the same
// order with the same sizes. mpirun and srun start the processes, MPI moves the bytes (comm/mpi), and a process alone is a group
// of one without any library.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "comm/mpi/table.h"

namespace millrace::comm {

/// How much of something is under way. Any thread may ask and change it.
class UnderWay {
public:
    using Clock = std::chrono::steady_clock;

    /// Counts for as long as it lives.
    class [[nodiscard]] Scope {
    public:
        explicit Scope(UnderWay& all) : all_(all) { all_.change(1); }
        ~Scope() { all_.change(-1); }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

    private:
        UnderWay& all_;
    };

    [[nodiscard]] int count() const { return count_; }
    /// When something last began or ended.
    [[nodiscard]] Clock::time_point changed() const { return Clock::time_point(Clock::duration(changed_.load())); }

private:
    /// The time first: who sees the new count sees when it became that.
    void change(int by) {
        changed_ = Clock::now().time_since_epoch().count();
        count_ += by;
    }

    std::atomic<int> count_ = 0;
    std::atomic<Clock::rep> changed_ = 0;
};

/// One at a time may be called, from any thread. An error leaves the group unusable: the process ends with a status other than 0
/// (mpirun and srun then end the others).
class Group {
public:
    /// Of this process alone, which receives what it sends.
    Group();
    /// Of the ranks that `table` reaches, which outlives it.
    static base::Result<std::unique_ptr<Group>> open(const MpiTable& table);
    /// The same where place and hosts are known.
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
    /// `bytes_each`, fewer than 2^31 bytes, and do not overlap.
    base::Status all_to_all(const void* send, void* receive, std::size_t bytes_each);
    /// `send` of rank r comes to place r of `receive` on every rank. `send` may be this rank's own place in `receive`, else they
    /// do not overlap.
    base::Status all_gather(const void* send, void* receive, std::size_t bytes_each);
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
    /// The texts, or vectors of plain values, of all ranks, each of any length. [size]
    template <class List>
    base::Result<std::vector<List>> all_lists(List own) {
        static_assert(std::is_trivially_copyable_v<typename List::value_type>);
        if (size() == 1) return std::vector<List>{std::move(own)};
        MILLRACE_LET(lengths, all_of(own.size()));
        const std::size_t longest = *std::ranges::max_element(lengths);
        own.resize(longest);
        List all(lengths.size() * longest, {});
        MILLRACE_TRY(all_gather(own.data(), all.data(), longest * sizeof(typename List::value_type)));
        std::vector<List> lists;
        for (auto at = all.cbegin(); const std::size_t length : lengths) {
            lists.emplace_back(at, at + static_cast<std::ptrdiff_t>(length));
            at += static_cast<std::ptrdiff_t>(longest);
        }
        return lists;
    }

    /// Ok where `own` is on every rank; else an error on all, with the exit status of the first one's and on rank 0 its text.
    template <class T>
    base::Status agree(const base::Result<T>& own) {
        return agree_on(own.ok() ? nullptr : &own.error());
    }
    /// Whether agree() has given an error: what was refused once needs no other agreement.
    [[nodiscard]] bool refused() const { return refused_; }

    /// Before leaving with an error: the destructor no longer waits for the other ranks.
    void abandon() { shared_->abandoned = true; }
    [[nodiscard]] bool abandoned() const { return shared_->abandoned; }

    /// Collectives of this group and its parts so far.
    [[nodiscard]] std::uint64_t messages() const { return shared_->messages; }
    /// Collectives, and what waits for other ranks elsewhere (on a device's stream).
    [[nodiscard]] UnderWay& waits() const { return shared_->waits; }

private:
    /// Of a group and its parts.
    struct Shared {
        std::atomic<bool> abandoned = false;
        std::atomic<std::uint64_t> messages = 0;
        UnderWay waits;
    };
    template <class Call, class... Arguments>
    base::Status collective(Call MpiTable::*call, Arguments... arguments);
    base::Status agree_on(const base::Error* own);

    const MpiTable* const table_ = nullptr;
    const MpiPlace place_{0, 1, 0, 1};
    int ranks_ = kAllRanks;
    bool refused_ = false;
    std::vector<std::string> hosts_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// How this process was started.
enum class Launch {
    kAlone,  ///< one process
    kGroup,  ///< one of several that can meet: by mpirun, or by srun --mpi=pmix
    kApart,  ///< one of several by srun without PMIx: they do not know each other
};
using Environment = std::function<const char*(const char* name)>;
/// A caller that needs no group asks this before open_group().
Launch launch(const Environment& environment = [](const char* name) { return std::getenv(name); });

/// Makes the ranks of a host share it: each has the GPU of its local rank for its own (from before CUDA starts), and those that
/// may use the same processors count with their part of them (base::usable_processors). Collective.
base::Status share_host(Group& group);
/// What CUDA_VISIBLE_DEVICES becomes for it: one of those in `visible`, or of all `gpus` where that is null, in turns; or empty.
std::string device_of_rank(const char* visible, int gpus, int local_rank);

/// The group of the processes that were started together, or of this one where it was started alone. MPI is loaded only under
/// Launch::kGroup, once per process; kApart is an error. Stays with the thread that opens it.
base::Result<std::unique_ptr<Group>> open_group();

}  // namespace millrace::comm
