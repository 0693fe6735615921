#include "diagnose/reading/kineto_own.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "diagnose/reading/kineto_event.h"
#include "diagnose/reading/name_table.h"

namespace millrace::diagnose {

namespace {

constexpr std::size_t kMostEntries = 1u << 20;

Time time_of(std::string_view number) { return std::clamp(integer_of(number).value_or(0), -kLatest, kLatest); }

std::uint32_t small_or_zero(std::string_view number) {
    const auto value = unsigned_of(number);
    return value && *value <= 0xffffffffu ? static_cast<std::uint32_t>(*value) : 0;
}

/// [begin, end, further numbers]; false when it is no list.
struct Row {
    Time begin = 0, end = 0;
    std::array<std::optional<double>, 3> more;
    std::size_t count = 0;  ///< of all
};

bool scan_row(JsonScanner& scanner, Row& row) {
    if (!scanner.enter_array()) return false;
    for (; scanner.next_element(); ++row.count) {
        const std::string_view number = scanner.number();
        if (row.count == 0) row.begin = time_of(number);
        if (row.count == 1) row.end = time_of(number);
        if (row.count >= 2 && row.count - 2 < row.more.size()) row.more[row.count - 2] = double_of(number);
    }
    row.end = std::max(row.begin, row.end);
    return !scanner.failed();
}

void scan_windows(JsonScanner& scanner, std::vector<Window>& windows) {
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        Row row;
        if (!scan_row(scanner, row) || windows.size() >= kMostEntries) continue;
        const double process = row.more[0].value_or(0);
        const bool known = process >= 0 && process <= 0xffffffffu;
        windows.push_back({row.begin, row.end, known ? static_cast<std::uint32_t>(process) : 0});
    }
    std::ranges::stable_sort(windows, {}, &Window::begin);
}

/// The third number of a block are its steps; of four the last is the wait for data, of five the last two are the call that was
/// counted and how many of it were a step.
void scan_blocks(JsonScanner& scanner, Timeline& timeline) {
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        Row row;
        if (!scan_row(scanner, row) || timeline.blocks.size() >= kMostEntries) continue;
        Block block{row.begin, row.end, row.more[0].value_or(0)};
        if (row.count == 4) block.loader_wait_ms = row.more[1];
        const double kind = row.more[1].value_or(-1), calls = row.more[2].value_or(0);
        if (row.count == 5 && kind >= 0 && kind <= static_cast<double>(CallKind::kAttribute) && calls > 0) {
            block.call = static_cast<CallKind>(kind);
            block.calls_per_step = calls;
        }
        if (block.steps >= 0) timeline.blocks.push_back(block);
    }
    std::ranges::stable_sort(timeline.blocks, {}, &Block::begin);
}

void scan_processes(JsonScanner& scanner, Timeline& timeline) {
    constexpr std::size_t kMost = 4096;
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        if (!scanner.enter_object()) continue;
        Process process;
        std::string_view key;
        while (scanner.next_key(key)) {
            if (key == "pid")
                process.pid = small_or_zero(scanner.number());
            else if (key == "parent")
                process.parent = small_or_zero(scanner.number());
            else if (key == "main_thread")
                process.main_thread = small_or_zero(scanner.number());
            else if (key == "command")
                process.command = clean_text(scanner.text());
            else if (key == "gpu") {
                process.has_gpu = scanner.peek() == JsonScanner::Kind::kTrue;
                scanner.skip();
            } else
                scanner.skip();
        }
        if (timeline.processes.size() < kMost) timeline.processes.push_back(std::move(process));
    }
}

/// As report/kineto_export.cpp writes it: all members in their order.
void scan_multiprocessors(JsonScanner& scanner, Multiprocessors& of) {
    if (!scanner.enter_array()) return;
    std::uint32_t* const members[] = {&of.count, &of.threads, &of.blocks, &of.shared_bytes, &of.reserved};
    for (std::size_t at = 0; scanner.next_element(); ++at) {
        const std::uint32_t value = small_or_zero(scanner.number());
        if (at < std::size(members)) *members[at] = value;
    }
}

void scan_remarks(JsonScanner& scanner, Timeline& timeline) {
    constexpr std::size_t kMost = 256;
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        std::string text = clean_text(scanner.text());
        if (!text.empty() && timeline.remarks.size() < kMost) timeline.remarks.push_back(std::move(text));
    }
}

}  // namespace

OwnSection scan_own_section(JsonScanner& scanner, Timeline& timeline) {
    OwnSection section;
    if (!scanner.enter_object()) return section;
    section.present = true;
    std::string_view key;
    while (scanner.next_key(key)) {
        if (key == "source") {
            const std::string_view source = scanner.text();
            timeline.source = source == "recording"  ? Source::kRecording
                              : source == "training" ? Source::kTraining
                                                     : Source::kKineto;
        } else if (key == "origin")
            section.origin = time_of(scanner.number());
        else if (key == "title")
            timeline.title = clean_text(scanner.text());
        else if (key == "device")
            timeline.device_name = clean_text(scanner.text(), 256);
        else if (key == "link_bytes_per_second") {
            const auto speed = double_of(scanner.number());
            if (speed && *speed > 0) timeline.link_bytes_per_second = speed;
        } else if (key == "link_is_assumed") {
            timeline.link_is_assumed = scanner.peek() == JsonScanner::Kind::kTrue;
            scanner.skip();
        } else if (key == "counting_share") {
            timeline.counting_share = std::clamp(double_of(scanner.number()).value_or(0), 0.0, 1.0);
        } else if (key == "presence_share") {
            timeline.presence_share = std::clamp(double_of(scanner.number()).value_or(1), 0.0, 1.0);
        } else if (key == "processors")
            timeline.processors = small_or_zero(scanner.number());
        else if (key == "dropped")
            timeline.dropped = unsigned_of(scanner.number()).value_or(0);
        else if (key == "processes")
            scan_processes(scanner, timeline);
        else if (key == "multiprocessors")
            scan_multiprocessors(scanner, timeline.multiprocessors);
        else if (key == "run") {
            if (Row row; scan_row(scanner, row)) timeline.run = {row.begin, row.end, 0};
        } else if (key == "windows")
            scan_windows(scanner, timeline.windows);
        else if (key == "left_out")
            scan_windows(scanner, timeline.left_out);
        else if (key == "blocks")
            scan_blocks(scanner, timeline);
        else if (key == "remarks")
            scan_remarks(scanner, timeline);
        else
            scanner.skip();
    }
    return section;
}

}  // namespace millrace::diagnose
