#include "sense/process_tree.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

namespace millrace::sense {
namespace {

using std::chrono::nanoseconds;

/// Walking the tree is cheap below this many files; a larger one, or a scan of the whole machine, happens once a second.
constexpr std::size_t kCheapWalk = 256;
constexpr nanoseconds kWalkInterval = std::chrono::seconds(1);
constexpr std::size_t kMostKept = 64;  // members whose descriptors stay open

std::uint64_t growth(std::uint64_t before, std::uint64_t now) { return now > before ? now - before : 0; }

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
    const std::size_t name_end = text.rfind(')');  // the name may hold anything, the fields behind it are numbers
    if (name_end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(name_end + 1);
    const std::string_view state = next_word(text);
    if (state.size() != 1) return std::nullopt;
    ProcessStat stat;
    stat.state = state[0];
    for (int field = 4; field <= 24; ++field) {  // numbered as in proc(5)
        const std::string_view word = next_word(text);
        const bool needed = field == 4 || (field >= 14 && field <= 17) || field == 20 || field == 22 || field == 24;
        if (!needed) continue;
        const auto count = to_count(word);
        if (!count) return std::nullopt;
        if (field == 4) stat.parent = static_cast<pid_t>(*count);
        if (field == 14 || field == 15) stat.own_ticks += *count;
        if (field == 16 || field == 17) stat.waited_ticks += *count;
        if (field == 20) stat.threads = *count;
        if (field == 22) stat.started = *count;
        if (field == 24) stat.resident_pages = *count;
    }
    return stat;
}

ProcessTree::ProcessTree(std::string proc, pid_t root, double ticks_per_second, double page_bytes)
    : proc_(std::move(proc)),
      root_(root),
      ticks_per_second_(ticks_per_second > 0 ? ticks_per_second : static_cast<double>(::sysconf(_SC_CLK_TCK))),
      page_bytes_(page_bytes > 0 ? page_bytes : static_cast<double>(::sysconf(_SC_PAGESIZE))) {
    const std::string number = std::to_string(root_);
    std::error_code failed;
    has_children_files_ = std::filesystem::exists(proc_ + "/" + number + "/task/" + number + "/children", failed);
}

bool ProcessTree::walk_is_due(nanoseconds now) const {
    return !walked_ || (has_children_files_ && walk_files_ <= kCheapWalk) || now - *walked_ >= kWalkInterval;
}

void ProcessTree::scan_parents() {
    parents_.clear();
    for (const pid_t pid : numbers_in(proc_)) {
        ++walk_files_;
        const auto text = ProcFile(proc_ + "/" + std::to_string(pid) + "/stat", false).read(buffer_);
        const auto stat = text ? parse_process_stat(*text) : std::nullopt;
        if (stat) parents_.emplace_back(stat->parent, pid);
    }
    std::sort(parents_.begin(), parents_.end());
}

void ProcessTree::append_children(pid_t pid, std::vector<pid_t>& queue) {
    if (!has_children_files_) {
        auto at = std::lower_bound(parents_.begin(), parents_.end(), std::pair(pid, pid_t{0}));
        for (; at != parents_.end() && at->first == pid; ++at) queue.push_back(at->second);
        return;
    }
    const std::string tasks = proc_ + "/" + std::to_string(pid) + "/task/";
    const auto append_of_thread = [&](pid_t thread) {
        ++walk_files_;
        const auto text = ProcFile(tasks + std::to_string(thread) + "/children", false).read(buffer_);
        if (!text) return;
        std::string_view rest = *text;
        for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest))
            if (const auto child = to_count(word)) queue.push_back(static_cast<pid_t>(*child));
    };
    const auto known = members_.find(pid);
    if (known != members_.end() && known->second.now.threads == 1)
        append_of_thread(pid);
    else
        std::ranges::for_each(numbers_in(tasks), append_of_thread);
}

void ProcessTree::discover() {
    walk_files_ = 0;
    if (!has_children_files_) scan_parents();
    std::set<pid_t> reached;
    std::vector<pid_t> queue = {root_};
    order_.clear();
    auto forgotten = members_.begin();  // known ones that lost their parent come last
    for (std::size_t next = 0;; ++next) {
        while (next == queue.size() && forgotten != members_.end()) {
            if (!reached.contains(forgotten->first)) queue.push_back(forgotten->first);
            ++forgotten;
        }
        if (next == queue.size()) break;
        const pid_t pid = queue[next];
        if (!reached.insert(pid).second) continue;
        order_.push_back(pid);
        append_children(pid, queue);
    }
    for (const pid_t pid : order_) {
        if (members_.contains(pid)) continue;
        Member member;
        const std::string folder = proc_ + "/" + std::to_string(pid);
        const bool keep = members_.size() < kMostKept;
        member.stat = ProcFile(folder + "/stat", keep);
        member.io = ProcFile(folder + "/io", keep);
        members_.emplace(pid, std::move(member));
    }
}

void ProcessTree::read_member(Member& member) {
    member.alive = false;
    const auto text = member.stat.read(buffer_);
    const auto stat = text ? parse_process_stat(*text) : std::nullopt;
    member.alive = text && !text->empty() && (member.is_new ? stat.has_value() : !stat || stat->started == member.now.started);
    if (!member.alive || !stat) return;  // a line that cannot be parsed is no death: what was seen stands until the next one
    member.now = *stat;
    member.fresh[kOwnTicks] = stat->own_ticks;
    member.fresh[kWaitedTicks] = stat->waited_ticks;
    const auto io = member.io.read(buffer_);
    const auto requested = io ? find_count(*io, "rchar") : std::nullopt;
    const auto fetched = io ? find_count(*io, "read_bytes") : std::nullopt;
    const auto written = io ? find_count(*io, "write_bytes") : std::nullopt;
    member.fresh_io = requested && fetched && written;
    if (!member.fresh_io) return;
    member.fresh[kRequested] = *requested;
    member.fresh[kFetched] = *fetched;
    member.fresh[kWritten] = *written;
}

void ProcessTree::settle_vanished() {
    // Children stand behind their parents, so what a vanished one passes on reaches a vanished parent before its own turn.
    for (auto pid = order_.rbegin(); pid != order_.rend(); ++pid) {
        const auto found = members_.find(*pid);
        if (found == members_.end() || found->second.alive) continue;
        const Member& gone = found->second;
        const auto parent = members_.find(gone.now.parent);
        if (!gone.is_new && parent != members_.end()) {
            Counters& debt = parent->second.debt;
            debt[kWaitedTicks] +=
                gone.seen[kOwnTicks] + gone.seen[kWaitedTicks] + gone.debt[kWaitedTicks] + gone.carried[kWaitedTicks];
            for (const Quantity quantity : {kRequested, kFetched, kWritten})
                debt[quantity] += gone.seen[quantity] + gone.debt[quantity] + gone.carried[quantity];
        }
        members_.erase(found);
    }
    std::erase_if(order_, [&](pid_t pid) { return !members_.contains(pid); });
}

void ProcessTree::credit(Member& member) {
    const bool counts_io = member.fresh_io && (member.seen_io || member.is_new);
    if (counts_io) any_io_ = true;
    for (int quantity = 0; quantity < kQuantities; ++quantity) {
        const bool is_io = quantity >= kRequested;
        if (is_io && !member.fresh_io) continue;
        const std::uint64_t grown = growth(member.seen[quantity], member.fresh[quantity]);
        const std::uint64_t owed = member.debt[quantity] + member.carried[quantity];
        if (!is_io || counts_io) (member.is_new ? new_work_ : known_work_)[quantity] += static_cast<double>(growth(owed, grown));
        member.carried[quantity] = std::min(growth(grown, owed), member.debt[quantity]);
        member.debt[quantity] = 0;
        member.seen[quantity] = member.fresh[quantity];
    }
    member.seen_io = member.seen_io || member.fresh_io;
    member.is_new = false;
}

void ProcessTree::fill_rates(nanoseconds now, Reading& reading) {
    const double seconds = std::chrono::duration<double>(now - *read_before_).count();
    if (seconds <= 0) return;
    // What new members did is spread over the time since the walk before the one that found them: they may have started then.
    const double new_seconds = std::max(walk_seconds_, seconds);
    const auto rate = [&](Quantity quantity) { return known_work_[quantity] / seconds + new_work_[quantity] / new_seconds; };
    reading.utilization = 100.0 * (rate(kOwnTicks) + rate(kWaitedTicks)) / ticks_per_second_;
    if (!any_io_) return;
    reading.disk.request_bytes_per_second = rate(kRequested);
    reading.disk.read_bytes_per_second = rate(kFetched);
    reading.disk.write_bytes_per_second = rate(kWritten);
    if (rate(kRequested) > 0) reading.disk.cached_percent = std::max(0.0, 100.0 * (1.0 - rate(kFetched) / rate(kRequested)));
}

ProcessTree::Reading ProcessTree::read(nanoseconds now) {
    if (walk_is_due(now)) {
        walk_seconds_ = walked_ ? std::chrono::duration<double>(now - *walked_).count() : 0;
        discover();
        walked_ = now;
    }
    known_work_ = new_work_ = {};
    any_io_ = false;
    for (const pid_t pid : order_) read_member(members_.at(pid));
    settle_vanished();

    Reading reading;
    alive_.clear();
    double processes = 0, threads = 0, resident = 0;
    for (auto& [pid, member] : members_) {
        credit(member);
        if (member.now.state == 'Z' || member.now.state == 'X') continue;
        alive_.push_back(pid);
        ++processes;
        threads += static_cast<double>(member.now.threads);
        resident += static_cast<double>(member.now.resident_pages) * page_bytes_;
    }
    const std::optional<nanoseconds> before = read_before_;
    if (!alive_.empty()) {
        reading.process.count = processes;
        reading.process.threads = threads;
        reading.resident_bytes = resident;
        if (before) fill_rates(now, reading);
    }
    read_before_ = now;
    return reading;
}

}  // namespace millrace::sense
