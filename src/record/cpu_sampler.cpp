#include "record/cpu_sampler.h"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <span>
#include <utility>

#include "base/clock.h"
#include "record/process_numbers.h"

namespace millrace::record {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kWalk = std::chrono::milliseconds{400};
constexpr int kEagerAttempts = 8, kMostAttempts = 256;  ///< walks: programs may load an interpreter late
constexpr std::size_t kMostOpenThreads = 128;           ///< threads whose files stay open
constexpr std::size_t kMostSamples = std::size_t{1} << 16, kMostSeen = 4096, kMostMembers = 512;
constexpr std::size_t kCommandCap = 4096;

/// The words of a command line with blanks between them.
std::string words_of(std::string_view text) {
    std::string words(text.substr(0, kCommandCap));
    while (!words.empty() && words.back() == '\0') words.pop_back();
    for (char& letter : words)
        if (static_cast<unsigned char>(letter) < 0x20) letter = ' ';
    return words;
}

char state_in(std::string_view stat) {
    const std::size_t end = stat.rfind(')');
    return end != std::string_view::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
}

/// Those that threads of training programs wait in. Numbers differ between architectures, and some have no older forms.
using CallName = std::pair<long, std::string_view>;
constexpr CallName kNames[] = {{SYS_futex, "futex"},
                               {SYS_read, "read"},
                               {SYS_write, "write"},
                               {SYS_readv, "readv"},
                               {SYS_writev, "writev"},
                               {SYS_pread64, "pread64"},
                               {SYS_pwrite64, "pwrite64"},
                               {SYS_openat, "openat"},
                               {SYS_close, "close"},
                               {SYS_fsync, "fsync"},
                               {SYS_fdatasync, "fdatasync"},
                               {SYS_ioctl, "ioctl"},
                               {SYS_ppoll, "ppoll"},
                               {SYS_pselect6, "pselect6"},
                               {SYS_epoll_pwait, "epoll_pwait"},
                               {SYS_nanosleep, "nanosleep"},
                               {SYS_clock_nanosleep, "clock_nanosleep"},
                               {SYS_sched_yield, "sched_yield"},
                               {SYS_wait4, "wait4"},
                               {SYS_waitid, "waitid"},
                               {SYS_recvmsg, "recvmsg"},
                               {SYS_recvfrom, "recvfrom"},
                               {SYS_sendmsg, "sendmsg"},
                               {SYS_sendto, "sendto"},
                               {SYS_accept4, "accept4"},
                               {SYS_connect, "connect"},
                               {SYS_mmap, "mmap"},
                               {SYS_munmap, "munmap"},
                               {SYS_madvise, "madvise"},
                               {SYS_brk, "brk"},
                               {SYS_getdents64, "getdents64"},
                               {SYS_clone, "clone"}};
#ifdef SYS_poll
constexpr CallName kOlderNames[] = {
    {SYS_poll, "poll"}, {SYS_select, "select"}, {SYS_epoll_wait, "epoll_wait"}, {SYS_fork, "fork"}};
#else
constexpr std::array<CallName, 0> kOlderNames{};
#endif

}  // namespace

void ThreadLook::walk(std::uint64_t now, Sightings& seen) {
    tree_.read(nanoseconds{static_cast<std::int64_t>(now)});
    threads_ = 0;
    for (const auto& [pid, member] : members_) threads_ += member.threads.size();
    const std::vector<pid_t>& alive = tree_.members();
    for (auto member = members_.begin(); member != members_.end();) {
        if (std::ranges::binary_search(alive, static_cast<pid_t>(member->first))) {
            ++member;
            continue;
        }
        member->second.about.ended = now;
        seen.processes.push_back(std::move(member->second.about));
        member = members_.erase(member);
    }
    for (const pid_t pid : alive) {
        const auto number = static_cast<std::uint32_t>(pid);
        const std::string folder = proc_ + "/" + std::to_string(pid);
        const auto command = sense::ProcFile(folder + "/cmdline", false).read(buffer_);
        const std::string words = command ? words_of(*command) : std::string();
        auto known = members_.find(number);
        if (known == members_.end()) {
            if (members_.size() >= kMostMembers) continue;
            known = members_.emplace(number, Member{}).first;
            known->second.about.pid = number;
            known->second.about.appeared = now;
            known->second.own_number = own_number_of(number, proc_);
        }
        Member& member = known->second;
        if (words != member.about.command && !words.empty()) {  // new, or it executes something else by now
            const auto stat = sense::ProcFile(folder + "/stat", false).read(buffer_);
            const auto parsed = stat ? sense::parse_process_stat(*stat) : std::nullopt;
            member.about.parent = parsed ? static_cast<std::uint32_t>(parsed->parent) : 0;
            member.about.command = words;
            member.python.reset();
            member.attempts = 0;
            member.threads.clear();
            seen.processes.push_back(member.about);
        }
        attach(member);
        refresh_threads(member);
    }
}

void ThreadLook::attach(Member& member) {
    if (member.python || member.attempts >= kMostAttempts) return;
    ++member.attempts;
    if (member.attempts > kEagerAttempts && member.attempts % kEagerAttempts != 0) return;
    member.python = PythonProcess::attach(static_cast<pid_t>(member.about.pid), proc_);
}

void ThreadLook::refresh_threads(Member& member) {
    const std::uint32_t pid = member.about.pid;
    std::map<std::uint32_t, std::uint64_t> wanted{{member.own_number, 0}};
    if (member.python)
        for (const PythonThread& thread : member.python->threads()) wanted[thread.number] = thread.state;
    std::map<std::uint32_t, std::uint32_t> ours;
    if (member.own_number != pid) {
        ours = threads_by_own_number(pid, proc_);
        std::erase_if(wanted, [&](const auto& entry) { return !ours.contains(entry.first); });
    }
    std::erase_if(member.threads, [&](const auto& entry) { return !wanted.contains(entry.first); });
    for (const auto& [number, state] : wanted) {
        auto [at, fresh] = member.threads.try_emplace(number);
        if (fresh) {
            const std::string folder =
                proc_ + "/" + std::to_string(pid) + "/task/" + std::to_string(ours.empty() ? number : ours[number]);
            const bool keep = ++threads_ <= kMostOpenThreads;
            at->second.stat = sense::ProcFile(folder + "/stat", keep);
            at->second.call = sense::ProcFile(folder + "/syscall", keep);
        }
        at->second.state = state;
    }
}

void ThreadLook::look(std::uint64_t now, const std::set<std::uint32_t>& busy, bool all, Sightings& seen) {
    for (auto& [pid, member] : members_) {
        const bool first = busy.contains(pid);
        for (auto& [number, thread] : member.threads)
            if (all || (first && number == member.own_number)) look_at(member, number, thread, now, seen);
    }
}

void ThreadLook::look_at(Member& member, std::uint32_t number, Thread& thread, std::uint64_t now, Sightings& seen) {
    const auto stat = thread.stat.read(buffer_);
    if (!stat || stat->empty()) return;
    CpuSample sample{now, member.about.pid, number, state_in(*stat), {}, nullptr};
    if (sample.state == 'Z' || sample.state == 'X') return;
    if (sample.state != 'R')
        if (const auto call = thread.call.read(buffer_)) sample.wait = system_call_in(*call);
    if (thread.state != 0 && member.python) sample.stack = member.python->stack(thread.state, seen.loops);
    seen.samples.push_back(std::move(sample));
}

CpuSampler::CpuSampler(pid_t root) : look_(root) {
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void CpuSampler::stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
}

void CpuSampler::set_busy(std::set<std::uint32_t> pids) {
    const std::lock_guard lock(mutex_);
    busy_ = std::move(pids);
}

Sightings CpuSampler::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
}

std::uint64_t CpuSampler::dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
}

void CpuSampler::loop(const std::stop_token& stop) {
    Sightings seen;
    std::set<std::uint32_t> busy;
    SamplingPace pace;
    std::uint64_t walked = 0;
    auto due = std::chrono::steady_clock::now();
    while (true) {
        const std::uint64_t now = base::monotonic_ns();
        if (walked == 0 || now - walked >= static_cast<std::uint64_t>(kWalk.count())) {
            look_.walk(now, seen);
            walked = now;
        }
        const std::uint64_t begin = base::monotonic_ns();
        look_.look(begin, busy, pace.is_for_all(), seen);
        pace.looked(nanoseconds{static_cast<std::int64_t>(base::monotonic_ns() - begin)});
        due = std::max(due + pace.round(), std::chrono::steady_clock::now());

        std::unique_lock lock(mutex_);
        const std::size_t room = std::min(kMostSamples - std::min(kMostSamples, seen_.samples.size()), seen.samples.size());
        dropped_ += seen.samples.size() - room;
        std::ranges::move(std::span(seen.samples).first(room), std::back_inserter(seen_.samples));
        if (seen_.processes.size() < kMostSeen) std::ranges::move(seen.processes, std::back_inserter(seen_.processes));
        std::ranges::move(seen.loops, std::back_inserter(seen_.loops));
        seen = {};
        busy = busy_;
        wake_.wait_until(lock, stop, due, [] { return false; });
        if (stop.stop_requested()) return;
    }
}

std::string_view system_call_in(std::string_view line) {
    long number = -1;
    const auto [end, failed] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (failed != std::errc{} || number < 0) return {};
    for (const std::span<const CallName> names : {std::span<const CallName>(kNames), std::span<const CallName>(kOlderNames)})
        if (const auto found = std::ranges::find(names, number, &CallName::first); found != names.end()) return found->second;
    return "other";
}

}  // namespace millrace::record
