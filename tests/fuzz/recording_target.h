#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the bytes are parts, each a
// kind (one byte), a length (two, low first) and its content, from which a run directory is made. Kinds 1 to 9 are frames of
// trace.bin, with the right checksum so that what is in them gets looked at; 100 goes into trace.bin as it is, 101 into
// samples.jsonl, 102 into metrics.jsonl. Whatever there is, a timeline or an error comes out of it.

#include <string>
#include <string_view>

#include "diagnose/reading/timeline_reader.h"
#include "fuzz/timeline_check.h"
#include "record/trace_file.h"

namespace millrace::fuzz {

struct RunParts {
    std::string trace, samples, metrics;
};

/// Rows stand in frames spread out; the input has them as they are.
inline void add_frame(std::uint8_t kind, std::string_view content, std::string& trace) {
    std::string packed;
    const auto spread = [&](std::size_t head, std::size_t width) {
        head = std::min(head, content.size());
        const std::string_view rows = content.substr(head, (content.size() - head) / width * width);
        packed.assign(content.substr(0, head));
        record::spread_rows(io::bytes_of(rows), width, packed);
    };
    if (kind == static_cast<std::uint8_t>(record::FrameKind::kRecords))
        spread(8, sizeof(record::Record));
    else if (kind == static_cast<std::uint8_t>(record::FrameKind::kSamples))
        spread(0, 32);
    else
        packed.assign(content);
    const auto frame = record::pack_frame(static_cast<record::FrameKind>(kind), io::bytes_of(packed));
    trace.append(reinterpret_cast<const char*>(frame.data()), frame.size());
}

inline RunParts parts_of(std::string_view input) {
    RunParts parts;
    while (input.size() >= 3) {
        const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
        const std::uint8_t kind = byte(0);
        const std::size_t length = std::min<std::size_t>(byte(1) | byte(2) << 8, input.size() - 3);
        const std::string_view content = input.substr(3, length);
        input.remove_prefix(3 + length);
        if (parts.trace.empty() && kind <= 100) parts.trace = record::kTraceMagic;
        if (kind == 101)
            parts.samples += content;
        else if (kind == 102)
            parts.metrics += content;
        else if (kind == 100)
            parts.trace += content;
        else
            add_frame(kind, content, parts.trace);
    }
    return parts;
}

/// `folder` is this input's alone; it is left with its files.
inline void read_recording_bytes(std::string_view input, const io::Path& folder) {
    const RunParts parts = parts_of(input);
    const auto put = [&](const char* name, std::string_view text) {
        std::filesystem::remove(folder / name);
        if (text.empty()) return;
        const auto written =
            io::write_new_file(folder / name, [&](io::FileWriter& file) { return file.write(io::bytes_of(text)); });
        MILLRACE_ASSERT(written.ok(), written.ok() ? "" : written.error().text());
    };
    put("manifest.json", R"({"format":1,"millrace":"0","status":"finished","command":["x"],"device":"cuda:0 GPU","recipe":{}})");
    put(record::kTraceName, parts.trace);
    put("samples.jsonl", parts.samples);
    put("metrics.jsonl", parts.metrics);
    const auto timeline = diagnose::read_timeline(folder);
    if (!timeline.ok()) {
        MILLRACE_ASSERT(timeline.error().exit_status == 2 || timeline.error().exit_status == 4, "an exit status that is none");
        return;
    }
    check_round_trip(*timeline, check_timeline(*timeline));
    check_diagnosis(*timeline);
}

}  // namespace millrace::fuzz
