#include "report/trace_events.h"

#include "diagnose/reading/name_table.h"

namespace millrace::report {

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char letter : diagnose::clean_text(text, std::size_t{1} << 16)) {
        if (letter == '"' || letter == '\\') out += '\\';
        out += letter;
    }
    return out + '"';
}

base::Status TraceEvents::raw(std::string_view text) {
    bytes_ += text.size();
    return sink_->write(io::bytes_of(text));
}

TraceEvents& TraceEvents::begin(char phase, std::string_view category, std::string_view name, std::uint64_t pid,
                                std::uint64_t tid) {
    event_ = events_ == 0 ? "\n" : ",\n";
    arguments_.clear();
    fmt::format_to(std::back_inserter(event_), R"({{"ph":"{}",)", phase);
    if (!category.empty()) fmt::format_to(std::back_inserter(event_), R"("cat":"{}",)", category);
    fmt::format_to(std::back_inserter(event_), R"("name":{},"pid":{},"tid":{})", json_text(name), pid, tid);
    return *this;
}

TraceEvents& TraceEvents::at(diagnose::Time time) {
    const diagnose::Time relative = time - origin_;
    fmt::format_to(std::back_inserter(event_), R"(,"ts":{}.{:03})", relative / 1000, relative % 1000);
    return *this;
}

TraceEvents& TraceEvents::lasts(diagnose::Time duration) {
    fmt::format_to(std::back_inserter(event_), R"(,"dur":{}.{:03})", duration / 1000, duration % 1000);
    return *this;
}

TraceEvents& TraceEvents::field(std::string_view json) {
    event_ += ',';
    event_ += json;
    return *this;
}

TraceEvents& TraceEvents::argument(std::string_view name, std::string_view json) {
    fmt::format_to(std::back_inserter(arguments_), R"({}"{}":{})", arguments_.empty() ? "" : ",", name, json);
    return *this;
}

base::Status TraceEvents::end() {
    if (!arguments_.empty()) fmt::format_to(std::back_inserter(event_), R"(,"args":{{{}}})", arguments_);
    event_ += '}';
    if (left_out_ > 0 || bytes_ + event_.size() > cap_) {
        ++left_out_;
        return base::ok();
    }
    ++events_;
    return raw(event_);
}

}  // namespace millrace::report
