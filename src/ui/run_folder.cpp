#include "ui/run_folder.h"

#include <algorithm>

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

}  // namespace

base::Result<RunFolder> RunFolder::open(const io::Path& folder) {
    MILLRACE_LET(held, io::HeldFolder::open(folder));
    return RunFolder(std::move(held));
}

void RunFolder::look() {
    ++looks_;
    folders_ = 0;
    was_cut_ = false;
    seen_.clear();
    problems_.clear();
    old_pages_ = std::move(pages_);
    pages_.clear();
    walk("", 0);
    const std::size_t before = runs_.size();
    std::erase_if(runs_, [&](const auto& run) { return !seen_.contains(run.first); });
    if (runs_.size() != before || pages_ != old_pages_) list_changed_ = looks_;
}

void RunFolder::walk(const std::string& name, int depth) {
    if (++folders_ > kMostFolders) {
        was_cut_ = true;
        return;
    }
    const auto entries = folder_.list(name, kMostEntries);
    if (!entries.ok()) return;  // gone, or not for us to read
    const bool is_run = std::ranges::any_of(*entries, [](const auto& entry) { return entry.name == "manifest.json"; });
    if (is_run) take_run(name.empty() ? "." : name);
    for (const io::HeldFolder::Entry& entry : *entries) {
        const std::string inside = name.empty() ? entry.name : name + "/" + entry.name;
        if (entry.name.starts_with('.')) continue;
        if (entry.is_folder && (!is_run || name.empty()) && depth < kDeepest)
            walk(inside, depth + 1);
        else if (!entry.is_folder && entry.name.ends_with(".html") && !(is_run && belongs_to_run(entry.name)))
            take_page(inside);
    }
}

void RunFolder::take_run(const std::string& name) {
    const auto [found, is_new] = runs_.try_emplace(name, FoundRun{RunFollower(name), looks_});
    const auto looked = found->second.follower.look(folder_);
    if (!looked.ok()) {
        problems_[name] = looked.error().text();
        if (is_new) {
            runs_.erase(found);
            return;
        }
    } else if (*looked) {
        found->second.changed = looks_;
    }
    if (is_new) list_changed_ = looks_;
    seen_[name] = true;
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
