#include "diagnose/reading/source_file.h"

#include <algorithm>
#include <chrono>
#include <string_view>

namespace millrace::diagnose {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSource = std::size_t{4} << 20;

bool is_source(const std::string& name) {
    constexpr std::string_view kEndings[] = {".py", ".pyx", ".cpp", ".cc", ".cxx", ".cu", ".cuh", ".h", ".hpp"};
    // The system would take a name up to its first zero.
    if (name.find('\0') != std::string::npos) return false;
    return std::any_of(std::begin(kEndings), std::end(kEndings), [&](std::string_view ending) { return name.ends_with(ending); });
}

std::int64_t nanoseconds_of(fs::file_time_type time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(fs::file_time_type::clock::to_sys(time).time_since_epoch())
        .count();
}

}  // namespace

std::optional<std::string> read_source(const std::string& name) {
    if (!is_source(name)) return std::nullopt;
    auto text = io::read_text(name, kMostSource);
    if (!text.ok()) return std::nullopt;
    return std::move(*text);
}

FindSources sources_of(const io::Path& trace) {
    std::error_code failed;
    const fs::file_time_type made = fs::last_write_time(trace, failed);
    if (failed) return {};
    return [made, folder = trace.parent_path()](const std::string& name) {
        std::vector<SourceFile> found;
        std::vector<io::Path> places{name};
        if (places[0].is_relative() && !folder.empty()) places.insert(places.begin(), folder / name);
        for (const io::Path& place : places) {
            auto text = read_source(place.string());
            if (!text) continue;
            std::error_code unknown;
            const fs::file_time_type written = fs::last_write_time(place, unknown);
            found.push_back({std::move(*text), unknown || written > made, place.string(), nanoseconds_of(written)});
        }
        return found;
    };
}

}  // namespace millrace::diagnose
