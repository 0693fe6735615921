#include "report/sample_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "base/version.h"
#include "diagnose/reading/name_table.h"
#include "report/trace_events.h"

namespace millrace::report {
namespace {

using diagnose::Frame;
using diagnose::Sample;
using diagnose::Time;
using diagnose::Timeline;

constexpr Time kUsualLook = 10'000'000;  ///< from one look at a main thread to the next: of the last sample

/// A stack as it was seen for some time.
struct Stretch {
    std::uint32_t stack = 0, wait = 0;
    Time time = 0;
};
using Thread = std::pair<std::uint32_t, std::uint32_t>;  ///< process, thread
using Threads = std::map<Thread, std::vector<Stretch>>;

Threads threads_of(const Timeline& timeline) {
    Threads threads;
    std::map<Thread, Time> latest;
    for (const Sample& sample : timeline.samples) {
        const Thread thread{sample.process, sample.thread};
        std::vector<Stretch>& stretches = threads[thread];
        if (!stretches.empty()) stretches.back().time += std::max<Time>(0, sample.time - latest[thread]);
        latest[thread] = sample.time;
        const bool same = !stretches.empty() && stretches.back().stack == sample.stack && stretches.back().wait == sample.wait;
        if (!same) stretches.push_back({sample.stack, sample.wait, 0});
    }
    for (auto& [thread, stretches] : threads) stretches.back().time += kUsualLook;
    return threads;
}

std::string process_name(const Timeline& timeline, std::uint32_t pid) {
    const auto process = std::ranges::find(timeline.processes, pid, &diagnose::Process::pid);
    const bool named = process != timeline.processes.end() && !process->command.empty();
    return fmt::format("{} ({})", named ? process->command : "process", pid);
}

std::string wait_frame(const Timeline& timeline, std::uint32_t wait) {
    return wait < timeline.names.size() && !timeline.names[wait].empty() ? fmt::format("[{}]", timeline.names[wait]) : "";
}

const diagnose::Stack& stack_of(const Timeline& timeline, const Stretch& stretch) {
    static const diagnose::Stack kUnread{{"", 0, "[no frames]", true}};
    const bool known = stretch.stack < timeline.stacks.size() && !timeline.stacks[stretch.stack].empty();
    return known ? timeline.stacks[stretch.stack] : kUnread;
}

/// Frames as they are shared by all profiles.
class SharedFrames {
public:
    explicit SharedFrames(const Timeline& timeline) : timeline_(timeline) {}

    /// "[0,4,7]", outermost first.
    std::string indices(const Stretch& stretch) {
        const diagnose::Stack& stack = stack_of(timeline_, stretch);
        std::string list;
        for (auto frame = stack.rbegin(); frame != stack.rend(); ++frame)
            list += fmt::format("{}{}", list.empty() ? "[" : ",", index(*frame));
        if (const std::string wait = wait_frame(timeline_, stretch.wait); !wait.empty())
            list += fmt::format(",{}", index({"", 0, wait, true}));
        return list + "]";
    }
    [[nodiscard]] const std::string& json() const { return json_; }

private:
    std::size_t index(const Frame& frame) {
        const auto [entry, fresh] = known_.try_emplace({frame.file, frame.function, frame.line}, known_.size());
        if (!fresh) return entry->second;
        json_ +=
            fmt::format("{}{{\"name\":{}", json_.empty() ? "" : ",\n", json_text(frame.function.empty() ? "?" : frame.function));
        if (!frame.file.empty()) json_ += fmt::format(",\"file\":{}", json_text(frame.file));
        if (frame.line > 0 && !frame.native) json_ += fmt::format(",\"line\":{}", frame.line);
        json_ += "}";
        return entry->second;
    }

    const Timeline& timeline_;
    std::map<std::tuple<std::string, std::string, int>, std::size_t> known_;
    std::string json_;
};

base::Status put(io::ByteSink& sink, const std::string& text) { return sink.write(io::bytes_of(text)); }

/// A frame of a collapsed stack: no semicolon and no line break may be in it.
std::string collapsed(std::string_view text) {
    std::string clean = diagnose::clean_text(text);
    std::ranges::replace(clean, ';', ',');
    return clean.empty() ? "?" : clean;
}

std::string collapsed(const Frame& frame) {
    const std::string function = frame.function.empty() ? "?" : frame.function,
                      file = frame.file.substr(frame.file.rfind('/') + 1);
    if (file.empty()) return collapsed(function);
    const bool line = frame.line > 0 && !frame.native;
    return collapsed(line ? fmt::format("{} ({}:{})", function, file, frame.line) : fmt::format("{} ({})", function, file));
}

}  // namespace

base::Status write_speedscope(const Timeline& timeline, io::ByteSink& sink) {
    SharedFrames frames(timeline);
    MILLRACE_TRY(put(
        sink, fmt::format("{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n\"exporter\":{},\"name\":{},\n"
                          "\"profiles\":[",
                          json_text("millrace " + std::string(base::version())), json_text(timeline.title))));
    const char* between = "";
    for (const auto& [thread, stretches] : threads_of(timeline)) {
        const std::string name = fmt::format("{}, thread {}", process_name(timeline, thread.first), thread.second);
        std::string samples, weights;
        Time end = 0;
        for (const Stretch& stretch : stretches) {
            samples += (samples.empty() ? "" : ",") + frames.indices(stretch);
            weights += fmt::format("{}{}", weights.empty() ? "" : ",", stretch.time);
            end += stretch.time;
        }
        MILLRACE_TRY(
            put(sink,
                fmt::format("{}\n{{\"type\":\"sampled\",\"name\":{},\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":{},\n"
                            "\"samples\":[{}],\n\"weights\":[{}]}}",
                            between, json_text(name), end, samples, weights)));
        between = ",";
    }
    return put(sink, fmt::format("],\n\"shared\":{{\"frames\":[\n{}]}}}}\n", frames.json()));
}

base::Status write_collapsed(const Timeline& timeline, io::ByteSink& sink) {
    for (const auto& [thread, stretches] : threads_of(timeline)) {
        std::map<std::pair<std::uint32_t, std::uint32_t>, Time> times;
        for (const Stretch& stretch : stretches) times[{stretch.stack, stretch.wait}] += stretch.time;
        const std::string place = fmt::format("{};thread {}", collapsed(process_name(timeline, thread.first)), thread.second);
        for (const auto& [key, time] : times) {
            const Stretch stretch{key.first, key.second, time};
            const diagnose::Stack& stack = stack_of(timeline, stretch);
            std::string text = place;
            for (auto frame = stack.rbegin(); frame != stack.rend(); ++frame) text += ";" + collapsed(*frame);
            if (const std::string wait = wait_frame(timeline, stretch.wait); !wait.empty()) text += ";" + collapsed(wait);
            MILLRACE_TRY(put(sink, fmt::format("{} {}\n", text, (time + 999) / 1000)));
        }
    }
    return base::ok();
}

}  // namespace millrace::report
