#include "ui/run_folder.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <system_error>
#include <thread>

#include "base/processors.h"

namespace millrace::ui {
namespace {

constexpr int kDeepest = 5;
constexpr std::size_t kMostFolders = 20'000, kMostEntries = 20'000, kMostPages = 1000;
constexpr std::size_t kTitleReach = 4096, kLongestTitle = 200;

/// Pages that belong to a run are reached from it.
bool belongs_to_run(std::string_view file) { return file == "report.html" || file == "sweep.html"; }

std::string title_of(std::string_view begin, const std::string& name) {
    const std::size_t from = begin.find("<title>"), to = begin.find("</title>");
    if (from == std::string_view::npos || to == std::string_view::npos || to < from + 7) return name;
    return std::string(begin.substr(from + 7, std::min(to - from - 7, kLongestTitle)));
}

/// Calls body(i) for every i below `count`, by up to so many threads.
template <class Body>
void for_each_of(std::size_t count, int threads, Body&& body) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < count; i = next++) body(i);
    };
    std::vector<std::jthread> others;
    try {
        for (int thread = 1; thread < threads && static_cast<std::size_t>(thread) < count; ++thread) others.emplace_back(work);
    } catch (const std::system_error&) {  // the system gives no more: those that there are do it
    }
    work();
}

}  // namespace

base::Result<RunFolder> RunFolder::open(const io::Path& folder) {
    MILLRACE_LET(held, io::HeldFolder::open(folder));
    return RunFolder(std::move(held));
}

/// A folder that a look comes to.
struct RunFolder::Visit {
    std::string name;
    std::vector<io::HeldFolder::Entry> entries = {};
    std::optional<RunFollower> run = {};  ///< where it holds a run
    bool is_new = false, changed = false;
    std::string problem = {};
};

void RunFolder::look() {
    ++looks_;
    folders_ = 0;
    was_cut_ = false;
    seen_.clear();
    problems_.clear();
    old_pages_ = std::move(pages_);
    pages_.clear();
    std::vector<Visit> level{{""}};
    for (int depth = 0; !level.empty(); ++depth) level = look_into(std::move(level), depth);
    std::ranges::sort(pages_, {}, &FoundPage::name);
    const std::size_t before = runs_.size();
    std::erase_if(runs_, [&](const auto& run) { return !seen_.contains(run.first); });
    if (runs_.size() != before || pages_ != old_pages_) list_changed_ = looks_;
}

/// Gives the folders below those of `level`.
std::vector<RunFolder::Visit> RunFolder::look_into(std::vector<Visit> level, int depth) {
    was_cut_ = was_cut_ || folders_ + level.size() > kMostFolders;
    level.resize(std::min(level.size(), kMostFolders - folders_));
    folders_ += level.size();
    // Once all is known, there is little to read, and trainings beside it need the processors.
    for_each_of(level.size(), looks_ == 1 ? base::usable_processors() : 1, [&](std::size_t i) { visit(level[i]); });
    std::vector<Visit> below;
    for (Visit& at : level) {
        const std::string run = at.name.empty() ? "." : at.name;
        if (!at.problem.empty()) problems_[run] = at.problem;
        if (at.run && (at.problem.empty() || !at.is_new)) {
            FoundRun& found = runs_.try_emplace(run, FoundRun{RunFollower(run), looks_}).first->second;
            found.follower = std::move(*at.run);
            if (at.changed) found.changed = looks_;
            if (at.is_new) list_changed_ = looks_;
            seen_.insert(run);
        }
        for (const io::HeldFolder::Entry& entry : at.entries) {
            const std::string inside = at.name.empty() ? entry.name : at.name + "/" + entry.name;
            if (entry.name.starts_with('.')) continue;
            if (entry.is_folder && (!at.run || at.name.empty()) && depth < kDeepest)
                below.push_back({inside});
            else if (!entry.is_folder && entry.name.ends_with(".html") && !(at.run && belongs_to_run(entry.name)))
                take_page(inside);
        }
    }
    return below;
}

/// Changes nothing but `at` and the run that it is: several threads visit at a time.
void RunFolder::visit(Visit& at) {
    const auto folder = folder_.folder(at.name);
    auto entries = folder.ok() ? folder->list("", kMostEntries) : folder.error();
    if (!entries.ok()) return;  // gone, or not for us to read
    at.entries = std::move(entries).value();
    if (!std::ranges::any_of(at.entries, [](const auto& entry) { return entry.name == "manifest.json"; })) return;
    const std::string name = at.name.empty() ? "." : at.name;
    const auto known = runs_.find(name);
    at.is_new = known == runs_.end();
    at.run = at.is_new ? RunFollower(name) : std::move(known->second.follower);
    const auto looked = at.run->look(*folder);
    if (!looked.ok()) at.problem = looked.error().text();
    at.changed = looked.ok() && *looked;
}

void RunFolder::take_page(const std::string& name) {
    if (pages_.size() >= kMostPages) return;
    const auto file = folder_.open_file(name);
    if (!file.ok()) return;
    const auto old = std::ranges::find(old_pages_, name, &FoundPage::name);
    if (old != old_pages_.end() && old->modified == file->modified) {
        pages_.push_back(*old);
        return;
    }
    const auto begin = io::read_piece(*file, 0, kTitleReach, name);
    pages_.push_back({name, begin.ok() ? title_of(*begin, name) : name, file->modified});
}

}  // namespace millrace::ui
