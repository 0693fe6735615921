#include "ui/run_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/version.h"
#include "plot/page.h"
#include "plot/svg.h"
#include "ui/embedded.h"
#include "ui/stream_rows.h"

namespace millrace::ui {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostReportRows = 4000;  // by the clock; more than can be seen
constexpr std::size_t kPictureCap = std::size_t{4} << 20, kPicturesCap = std::size_t{16} << 20;

/// All rows of a stream as the page takes them. Of those that come by the clock every nth, so that no more are left than can be
/// seen.
std::string whole_stream(const io::HeldFolder& folder, const std::string& name) {
    struct Kept {
        std::string text;
        std::uint64_t number;  ///< among those by the clock, from 1; 0: it is none of them
    };
    std::vector<Kept> rows;
    std::uint64_t seen = 0, stride = 1;
    const auto take = [&](const record::MetricsRow& row) {
        const record::MetricValue* kind = row.find("kind");
        const auto* text = kind != nullptr ? std::get_if<std::string>(kind) : nullptr;
        const bool by_the_clock = text != nullptr && (*text == "interval" || *text == "sample" || *text == "components");
        if (by_the_clock && ++seen % stride != 0) return;
        rows.push_back({record::row_text(row.values), by_the_clock ? seen : 0});
        if (rows.size() < kMostReportRows || stride > seen) return;
        stride *= 2;
        std::erase_if(rows, [&](const Kept& kept) { return kept.number % stride != 0; });
    };
    StreamPiece piece{0, true, false};
    for (std::int64_t offset = -1; piece.more; offset = static_cast<std::int64_t>(piece.offset))
        piece = read_rows(folder, name, offset, take);
    std::string text;
    for (const Kept& row : rows) text += (text.empty() ? "" : ",\n") + row.text;
    return fmt::format(R"({{"anew":true,"rows":[{}]}})", text);
}

Json pictures_in(const io::HeldFolder& folder) {
    Json pictures = Json::array();
    std::size_t bytes = 0;
    const auto entries = folder.list("", 1000);
    if (!entries.ok()) return pictures;
    for (const io::HeldFolder::Entry& entry : *entries) {
        const bool svg = entry.name.ends_with(".svg");
        if (entry.is_folder || entry.name.starts_with('.') || !(svg || entry.name.ends_with(".png"))) continue;
        const auto picture = folder.read_text(entry.name, kPictureCap);
        if (!picture.ok() || (bytes += picture->size()) > kPicturesCap) continue;
        pictures.push_back(
            {{"name", entry.name}, {"data", fmt::format("data:image/{};base64,{}", svg ? "svg+xml" : "png", base64(*picture))}});
    }
    return pictures;
}

/// JSON that may stand within a script element.
std::string inside_script(const std::string& json) {
    std::string text;
    for (const char c : json) text += c == '<' ? "\\u003c" : std::string(1, c);
    return text;
}

}  // namespace

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        unsigned group = 0;
        for (std::size_t k = 0; k < 3; ++k)
            group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
        for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
    return text;
}

std::string bytes_of_digits(std::string_view digits) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
    return bytes;
}

base::Result<std::string> run_report(const io::Path& folder) {
    MILLRACE_LET(held, io::HeldFolder::open(folder));
    RunFollower follower(".");
    MILLRACE_TRY(follower.look(held));
    RunSummary summary = follower.summary();
    std::error_code ignored;
    summary.name = std::filesystem::canonical(folder, ignored).filename().string();
    const std::string data =
        fmt::format(R"({{"run":{},"pictures":{},"metrics":{},"events":{},"samples":{}}})", base::json_text(run_json(summary)),
                    base::json_text(pictures_in(held)), whole_stream(held, "metrics.jsonl"), whole_stream(held, "events.jsonl"),
                    whole_stream(held, "samples.jsonl"));
    const std::string body = fmt::format(
        "<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<header class=\"top\"><b>Millrace "
        "run</b><code>{}</code></header>\n"
        "<main id=\"main\"><noscript>The report is drawn by its own script, which does not run here.</noscript></main>\n"
        "<footer>Made by millrace {}. This file loads nothing from the network.</footer>\n"
        "<script type=\"application/json\" id=\"data\">{}</script>\n",
        plot::xml_text(folder.string()), plot::xml_text(base::version()), inside_script(data));
    const std::string sum = base64(bytes_of_digits(report_script_sum()));
    return plot::html_page("Millrace run: " + summary.name, page_look(), {report_script(), sum}, body);
}

base::Status write_run_report(const io::Path& folder) {
    MILLRACE_LET(page, run_report(folder));
    MILLRACE_TRY(io::write_atomically(folder / "report.html", page));
    return base::ok();
}

}  // namespace millrace::ui
