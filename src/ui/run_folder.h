#pragma once
// A folder of runs, studies and diagnoses, looked at again and again while others write into it.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ui/run_summary.h"

namespace millrace::ui {

/// A page that a command wrote: the doctor's, or what somebody put there.
struct FoundPage {
    std::string name, title;
    std::int64_t modified = 0;  ///< nanoseconds since 1970
    [[nodiscard]] bool operator==(const FoundPage&) const = default;
};

struct FoundRun {
    RunFollower follower;
    std::uint64_t changed = 0;  ///< the look that found it changed
};

class RunFolder {
public:
    /// Links that lead to the folder itself are followed, those below it are not.
    static base::Result<RunFolder> open(const io::Path& folder);

    /// Finds runs (folders with a manifest.json) up to five folders deep, the folder itself included, and reads what is new. What
    /// cannot be read as a run is named in problems().
    void look();

    [[nodiscard]] const io::HeldFolder& folder() const { return folder_; }
    [[nodiscard]] const std::map<std::string, FoundRun>& runs() const { return runs_; }
    [[nodiscard]] const std::vector<FoundPage>& pages() const { return pages_; }
    [[nodiscard]] const std::map<std::string, std::string>& problems() const { return problems_; }  ///< by run
    [[nodiscard]] std::uint64_t looks() const { return looks_; }
    [[nodiscard]] std::uint64_t list_changed() const { return list_changed_; }  ///< the look that found other names or pages
    [[nodiscard]] bool was_cut() const { return was_cut_; }                     ///< there are more folders than are looked at

private:
    explicit RunFolder(io::HeldFolder folder) : folder_(std::move(folder)) {}
    struct Visit;
    std::vector<Visit> look_into(std::vector<Visit> level, int depth);
    void visit(Visit& at);
    void take_page(const std::string& name);

    io::HeldFolder folder_;
    std::map<std::string, FoundRun> runs_;
    std::vector<FoundPage> pages_;
    std::map<std::string, std::string> problems_;
    std::uint64_t looks_ = 0, list_changed_ = 0;
    bool was_cut_ = false;

    // Of the look that goes on.
    std::size_t folders_ = 0;
    std::set<std::string> seen_;
    std::vector<FoundPage> old_pages_;
};

}  // namespace millrace::ui
