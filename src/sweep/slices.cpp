#include "sweep/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"

namespace millrace::sweep {
namespace {

constexpr std::size_t kHeaderCap = std::size_t{1} << 20;
constexpr std::size_t kFileCap = std::size_t{1} << 36;

/// Nothing where the header has no such whole number.
std::optional<std::uint64_t> whole(const nlohmann::json& header, const char* name) {
    if (!header.is_object() || !header.contains(name) || !header[name].is_number_unsigned()) return std::nullopt;
    return header[name].get<std::uint64_t>();
}

}  // namespace

std::string history_text(const History& history) {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& [step, configuration] : history) out.push_back({step, configuration});
    return base::json_text(out);
}

std::optional<History> history_of_text(const std::string& text, const search::Space& space) {
    const auto json = base::json_from(text);
    if (!json.is_array()) return std::nullopt;
    History out;
    for (const auto& item : json) {
        if (!item.is_array() || item.size() != 2 || !item[0].is_number_integer() || !item[1].is_array()) return std::nullopt;
        search::Configuration& configuration = out[item[0].get<std::int64_t>()];
        for (const auto& value : item[1]) {
            if (!value.is_number()) return std::nullopt;
            configuration.push_back(value.get<double>());
        }
        if (!space.holds(configuration)) return std::nullopt;
    }
    if (out.empty() || out.begin()->first != 0) return std::nullopt;
    return out;
}

io::Path SliceStore::file_of(std::int64_t number) const { return folder_ / fmt::format("{}.slice", number); }

base::Status SliceStore::put(std::int64_t number, SavedTrial saved, const std::string& recipe) {
    const auto old = entries_.find(number);
    const std::size_t size = saved.slice.bytes.size(), before = old == entries_.end() ? 0 : old->second.saved->slice.bytes.size();
    Entry entry{std::make_shared<const SavedTrial>(std::move(saved)), recipe};
    if (bytes_ - before + size > most_bytes_) {
        MILLRACE_TRY(write(number, entry));
        release(number);
        return base::ok();
    }
    bytes_ = bytes_ - before + size;
    entries_[number] = std::move(entry);
    return base::ok();
}

std::shared_ptr<const SavedTrial> SliceStore::get(std::int64_t number, const std::string& recipe) const {
    if (const auto found = entries_.find(number); found != entries_.end()) return found->second.saved;
    const io::Path path = file_of(number);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return nullptr;
    const auto refuse = [&](const std::string& why) {
        MILLRACE_LOG(warn, "{}: {}; trial {} starts from its beginning", path.string(), why, number);
        return nullptr;
    };
    auto content = io::read_file(path, kFileCap);
    if (!content.ok()) return refuse(content.error().message);
    const auto end = std::find(
        content->begin(), content->begin() + static_cast<std::ptrdiff_t>(std::min(content->size(), kHeaderCap)), std::byte{'\n'});
    const std::string header(reinterpret_cast<const char*>(content->data()), static_cast<std::size_t>(end - content->begin()));
    const auto json = base::json_from(header);
    if (end == content->end() || whole(json, "trial") != static_cast<std::uint64_t>(number))
        return refuse("is not the state of this trial");
    if (whole(json, "recipe") != io::checksum_of(io::bytes_of(recipe))) return refuse("is of another recipe");
    SavedTrial saved;
    saved.slice.bytes.assign(end + 1, content->end());
    const auto epoch = whole(json, "epoch");
    const auto history =
        json.contains("history") && json["history"].is_string() ? history_of_text(json["history"], space_) : std::nullopt;
    if (whole(json, "checksum") != io::checksum_of(saved.slice.bytes) || !epoch || !history) return refuse("is damaged");
    saved.history = *history;
    saved.epoch = static_cast<std::int64_t>(*epoch);
    return std::make_shared<const SavedTrial>(std::move(saved));
}

base::Status SliceStore::write(std::int64_t number, const Entry& entry) const {
    std::error_code failed;
    std::filesystem::create_directories(folder_, failed);
    if (failed) return io::system_error("cannot create", folder_, failed.value());
    const nlohmann::json header{{"trial", static_cast<std::uint64_t>(number)},
                                {"epoch", static_cast<std::uint64_t>(entry.saved->epoch)},
                                {"history", history_text(entry.saved->history)},
                                {"recipe", io::checksum_of(io::bytes_of(entry.recipe))},
                                {"checksum", io::checksum_of(entry.saved->slice.bytes)}};
    const auto written = io::write_atomically(file_of(number), [&](io::FileWriter& out) -> base::Status {
        MILLRACE_TRY(out.write(io::bytes_of(base::json_text(header) + "\n")));
        return out.write(entry.saved->slice.bytes);
    });
    return written.ok() ? base::ok() : base::Status{written.error()};
}

void SliceStore::release(std::int64_t number) {
    const auto found = entries_.find(number);
    if (found == entries_.end()) return;
    bytes_ -= found->second.saved->slice.bytes.size();
    entries_.erase(found);
}

void SliceStore::drop(std::int64_t number) {
    release(number);
    std::error_code ignored;
    std::filesystem::remove(file_of(number), ignored);
}

base::Status SliceStore::flush() {
    for (const auto& [number, entry] : entries_) MILLRACE_TRY(write(number, entry));
    entries_.clear();
    bytes_ = 0;
    return base::ok();
}

}  // namespace millrace::sweep
