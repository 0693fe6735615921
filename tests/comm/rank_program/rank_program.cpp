// What the tests of comm/ start under mpirun: one rank that does what its first argument says. Exits 0, 1 after a failed check,
// or as an error says.

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "comm/group.h"
#include "comm/mpi/table.h"
#include "comm/reduce.h"
#include "comm/watchdog.h"

namespace {

using namespace millrace;
using Clock = std::chrono::steady_clock;

void check(bool is_right, const char* what, std::size_t size) {
    if (is_right) return;
    std::fprintf(stderr, "wrong: %s, size %zu\n", what, size);
    std::_Exit(1);
}

template <class T>
T require(base::Result<T> result) {
    if (result.ok()) return std::move(result).value();
    std::fprintf(stderr, "%s\n", result.error().text().c_str());
    std::_Exit(result.error().exit_status);
}

/// What rank `from` sends to rank `to`.
unsigned char byte_of(int from, int to, std::size_t at) {
    return static_cast<unsigned char>(from * 89 + to * 31 + at * 7 + at / 256);
}

void exchange(comm::Group& group, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto rank = static_cast<std::size_t>(group.rank());
    std::vector<unsigned char> send(ranks * bytes + 1, 0xee);
    std::vector<unsigned char> received(ranks * bytes + 1, 0xee);
    for (std::size_t i = 0; i < ranks * bytes; ++i) send[i] = byte_of(group.rank(), static_cast<int>(i / bytes), i % bytes);
    require(group.all_to_all(send.data(), received.data(), bytes));
    for (std::size_t i = 0; i < ranks * bytes; ++i)
        check(received[i] == byte_of(static_cast<int>(i / bytes), group.rank(), i % bytes), "all_to_all", bytes);
    check(received.back() == 0xee, "end of all_to_all", bytes);

    for (const bool in_place : {false, true}) {
        std::fill(received.begin(), received.end(), 0xee);
        const unsigned char* own = send.data();
        if (in_place) own = static_cast<unsigned char*>(std::memcpy(received.data() + rank * bytes, send.data(), bytes));
        require(group.all_gather(own, received.data(), bytes));
        for (std::size_t i = 0; i < ranks * bytes; ++i)
            check(received[i] == byte_of(static_cast<int>(i / bytes), 0, i % bytes), "all_gather", bytes);
        check(received.back() == 0xee, "end of all_gather", bytes);
    }
}

/// Values of such different sizes that another order of additions gives other bits.
float value_of(int rank, std::size_t at) {
    const auto bits = static_cast<unsigned>(at * 2654435761u + static_cast<unsigned>(rank) * 40503u + 12345u);
    const float fraction = static_cast<float>(bits >> 8) / 16777216.0f - 0.5f;
    return std::ldexp(fraction, static_cast<int>(bits % 17) - 8);
}

void sum(comm::Group& group, std::size_t count, std::size_t most) {
    comm::OrderedSum sums(group, most);
    std::vector<float> data(count + 1, 7.0f);
    for (std::size_t i = 0; i < count; ++i) data[i] = value_of(group.rank(), i);
    require(sums.reduce(data.data(), count));
    for (std::size_t i = 0; i < count; ++i) {
        float expected = value_of(0, i);
        for (int rank = 1; rank < group.size(); ++rank) expected += value_of(rank, i);
        check(std::memcmp(&expected, &data[i], sizeof expected) == 0, "sum", count);
    }
    check(data[count] == 7.0f, "end of sum", count);
}

/// Errors of some ranks become one of all.
void agree(comm::Group& group) {
    require(group.agree(base::ok()));
    const int last = group.size() - 1;
    const bool is_last = group.rank() == last;
    const auto agreed = group.agree(is_last ? base::Status(base::Error{"wrong file", "here", 7}) : base::ok());
    check(!agreed.ok() && agreed.error().exit_status == 7, "agreed status", 0);
    const std::string text = agreed.error().text();
    check((text.find("here: wrong file") != std::string::npos) == (group.rank() == 0), "agreed text", text.size());
    check((text.find("rank " + std::to_string(last)) == 0) == (group.rank() == 0 && last > 0), "agreed rank", text.size());
    check(group.refused() && group.agree(base::ok()).ok() && !group.refused(), "refused", 0);
}

/// `local`: ranks of this host; 0: all.
int exchanges(comm::Group& group, int local) {
    for (const std::size_t bytes : {0, 1, 2, 3, 7, 64, 3999, 4001, 12001, 65536, 65537, 1000003}) exchange(group, bytes);
    require(group.barrier());
    // A group of one, then of all ranks: empty, fewer than ranks, odd, prime, around the sizes where the way changes.
    for (const std::size_t count : {0, 1, 2, 3, 5, 17, 8192, 8193, 14563, 14564, 32768, 32769, 65537, 262144, 262147, 1000003})
        sum(group, count, count);
    sum(group, 1000, 1000003);  // less than it was made for
    std::string text(static_cast<std::size_t>(group.rank() * group.rank()) * 1000, static_cast<char>('a' + group.rank()));
    const auto texts = require(group.all_lists(text));
    const auto lists = require(group.all_lists(std::vector<double>(static_cast<std::size_t>(group.rank()), group.rank())));
    for (int rank = 0; rank < group.size(); ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        check(texts.at(at) == std::string(at * at * 1000, static_cast<char>('a' + rank)), "texts", text.size());
        check(lists.at(at) == std::vector<double>(at, rank), "lists", at);
    }
    check(group.hosts().size() == texts.size() && !group.hosts().front().empty(), "hosts", 0);
    const int expected = local > 0 ? local : group.size();
    check(group.local_size() == expected && group.local_rank() == group.rank() % expected, "local ranks", 0);
    agree(group);
    check(group.waits().count() == 0, "nothing under way", 0);
    check((group.messages() > 30) == (group.size() > 1), "collectives counted", group.messages());
    std::printf("rank %d of %d is right\n", group.rank(), group.size());
    return 0;
}

/// Announces its process id, then sums for ever: the test stops or kills it.
int endless(comm::Group& group, int timeout) {
    comm::Watchdog watchdog(group, std::chrono::milliseconds(timeout));
    std::printf("rank %d is process %d\n", group.rank(), getpid());
    std::fflush(stdout);
    comm::OrderedSum sums(group, 1000);
    std::vector<float> data(1000);
    for (int step = 0;; ++step) {
        watchdog.at_step(step);
        require(sums.reduce(data.data(), data.size()));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

/// Rank 0 is late by more than the timeout, which the others know of.
int paused(comm::Group& group, int timeout) {
    const std::chrono::milliseconds allowed(timeout);
    comm::Watchdog watchdog(group, allowed);
    {
        const auto pause = watchdog.pause();
        if (group.rank() == 0) std::this_thread::sleep_for(3 * allowed);
        require(group.barrier());
    }
    require(group.barrier());
    std::printf("rank %d of %d is right\n", group.rank(), group.size());
    return 0;
}

/// Leaves while the others wait for it.
int leaving(comm::Group& group) {
    if (group.rank() == 1) {
        group.abandon();
        return 9;
    }
    require(group.barrier());
    return 0;
}

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Sums in rank order beside MPI's own sums, in turns; the median of each. At most 1.3 times as long is right.
int bench(comm::Group& group) {
    const auto entry = reinterpret_cast<decltype(&millrace_mpi_table_3)>(dlsym(RTLD_DEFAULT, comm::kMpiEntry));
    check(entry != nullptr, "the plugin's table", 0);
    double worst = 0;
    for (std::size_t bytes = 4096; bytes <= 16u << 20; bytes *= 2) {
        const std::size_t count = bytes / sizeof(float);
        std::vector<float> data(count, 0.0f);
        comm::OrderedSum sums(group, count);
        const int repeats = bytes >= (1u << 20) ? 51 : 1001;
        std::vector<double> ours, theirs;
        for (int i = 0; i < repeats; ++i) {
            require(group.barrier());
            const auto start = Clock::now();
            require(sums.reduce(data.data(), count));
            ours.push_back(milliseconds_since(start));
            require(group.barrier());
            const auto again = Clock::now();
            check(entry()->all_reduce(comm::kAllRanks, data.data(), count) == nullptr, "MPI_Allreduce", count);
            theirs.push_back(milliseconds_since(again));
        }
        std::sort(ours.begin(), ours.end());
        std::sort(theirs.begin(), theirs.end());
        const auto middle = static_cast<std::size_t>(repeats) / 2;
        worst = std::max(worst, ours[middle] / theirs[middle]);
        if (group.rank() == 0)
            std::printf("%d ranks, %9zu bytes: in rank order %9.4f ms, MPI_Allreduce %9.4f ms, ratio %.2f\n", group.size(), bytes,
                        ours[middle], theirs[middle], ours[middle] / theirs[middle]);
    }
    if (group.rank() == 0) std::printf("%d ranks: at most %.2f, 1.3 would be right\n", group.size(), worst);
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    const std::string what = count > 1 ? arguments[1] : "";
    const int number = count > 2 ? std::atoi(arguments[2]) : 0;
    const auto group = require(comm::open_group());
    if (what == "exchanges") return exchanges(*group, number);
    if (what == "endless") return endless(*group, number);
    if (what == "paused") return paused(*group, number);
    if (what == "leaving") return leaving(*group);
    if (what == "bench") return bench(*group);
    std::fprintf(stderr, "rank_program exchanges [LOCAL] | endless MS | paused MS | leaving | bench\n");
    return 2;
}
