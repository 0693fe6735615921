#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the bytes are the files of a
// run directory, one after another, parted by 0xff (a byte that no JSON text holds): manifest.json, metrics.jsonl, samples.jsonl,
// events.jsonl, state.json of a checkpoint. Whatever they hold, the reader gives values or errors, and its counts add up.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "diagnose/reading/run_reader.h"
#include "io/checkpoint.h"
#include "record/metric_table.h"

namespace millrace::fuzz {

struct RunFiles {
    std::array<std::string_view, 5> parts;
    [[nodiscard]] std::string_view manifest() const { return parts[0]; }
    [[nodiscard]] std::string_view metrics() const { return parts[1]; }
    [[nodiscard]] std::string_view samples() const { return parts[2]; }
    [[nodiscard]] std::string_view events() const { return parts[3]; }
    [[nodiscard]] std::string_view state() const { return parts[4]; }
};

inline RunFiles split(std::string_view input) {
    RunFiles files;
    for (std::size_t i = 0; i < files.parts.size(); ++i) {
        const std::size_t end = i + 1 < files.parts.size() ? std::min(input.find('\xff'), input.size()) : input.size();
        files.parts[i] = input.substr(0, end);
        input.remove_prefix(std::min(end + 1, input.size()));
    }
    return files;
}

inline bool same(const record::MetricValue& a, const record::MetricValue& b) {
    const auto* x = std::get_if<double>(&a);
    const auto* y = std::get_if<double>(&b);
    if (x != nullptr && y != nullptr) return *x == *y || (std::isnan(*x) && std::isnan(*y));
    return a == b;
}

/// A row that was read is written and read again as the same row, with one exception: doubles that are whole numbers come back as
/// integers, as JSON has one kind of number.
inline void check_row(const record::MetricsRow& row) {
    const auto again = record::parse_row(record::row_text(row.values));
    MILLRACE_ASSERT(again.has_value(), "a row that was read cannot be written");
    MILLRACE_ASSERT(again->values.size() == row.values.size(), "a row lost values");
    for (std::size_t i = 0; i < row.values.size(); ++i) {
        MILLRACE_ASSERT(again->values[i].first == row.values[i].first, "a row lost a key");
        const bool number = std::holds_alternative<double>(row.values[i].second);
        if (!number) MILLRACE_ASSERT(same(again->values[i].second, row.values[i].second), "a row lost a value");
    }
    for (const auto& [key, value] : row.values)
        if (const auto metric = record::metric_of_key(key))
            MILLRACE_ASSERT(record::key_of(*metric->first, metric->second) == key, "a key does not lead back");
}

inline void check_stream(std::string_view text) {
    diagnose::ReadLimits limits;
    limits.line_bytes = 1024;
    const diagnose::RunStream stream = diagnose::parse_stream(text, limits);
    const auto ends = static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
    const bool torn = !text.empty() && text.back() != '\n';
    MILLRACE_ASSERT(stream.torn == torn, "a torn line was taken for whole, or the other way round");
    MILLRACE_ASSERT(stream.total + stream.skipped == ends + (torn ? 1 : 0), "lines are missing");
    MILLRACE_ASSERT(stream.rows.size() == stream.total, "rows are missing");
    for (const record::MetricsRow& row : stream.rows) check_row(row);

    diagnose::ReadLimits tight = limits;
    tight.rows = 3;
    tight.text_bytes = 200;
    const diagnose::RunStream thinned = diagnose::parse_stream(text, tight);
    MILLRACE_ASSERT(thinned.rows.size() <= 3 && thinned.total == stream.total && thinned.skipped == stream.skipped,
                    "limits change what is counted");

    std::uint64_t lines = 0;
    io::LineSplitter splitter(limits.line_bytes, [&](std::string_view) { ++lines; });
    for (std::size_t at = 0, piece = 1; at < text.size(); at += piece, piece = piece % 7 + 1)
        splitter.feed(text.substr(at, piece));
    MILLRACE_ASSERT(lines + splitter.too_long() == ends && splitter.torn() == torn, "pieces change what lines there are");
}

inline void check_manifest(std::string_view text) {
    const auto manifest = record::parse_manifest(text, "manifest.json");
    if (!manifest.ok()) return;
    const auto again = record::manifest_text(*manifest, "manifest.json");
    // A recipe that is no object is read (the run is still a run) but never written.
    if (!again.ok()) return;
    const auto back = record::parse_manifest(*again, "manifest.json");
    MILLRACE_ASSERT(back.ok(), "a manifest that was written cannot be read");
    MILLRACE_ASSERT(back->status == manifest->status && back->resumed.size() == manifest->resumed.size(),
                    "a manifest changed on its way");
}

inline void read_run_bytes(std::string_view input) {
    const RunFiles files = split(input);
    check_manifest(files.manifest());
    check_stream(files.metrics());
    check_stream(files.samples());
    check_stream(files.events());
    const auto state = io::parse_checkpoint_state(std::string(files.state()), "state.json");
    MILLRACE_ASSERT(!state.ok() || state->members > 0, "a checkpoint without members was accepted");
}

}  // namespace millrace::fuzz
