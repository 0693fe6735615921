#include "models/class_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plot/svg.h"

namespace millrace::models {
namespace {

constexpr std::size_t kMostCounted = 20, kMostNamed = 40, kMostCells = 128, kMostDrawn = 1024, kMostListed = 20;
constexpr std::size_t kLongestName = 18, kShades = 10;
constexpr double kEdge = 16, kMatrixLeft = 134, kMatrixTop = 152, kMatrixSide = 520, kWidestCell = 36, kListLine = 18;
constexpr double kLastName = 84, kTitleWidth = 460, kListColumn = 320;  // the last slanted name stands beside the matrix

constexpr const char* kMatrixRules =
    ".frame{fill:none;stroke:#d1d5db}.right{fill:#1d4ed8}.wrong{fill:#c2410c}.count,.on{font-size:10px}.on{fill:#ffffff}";
constexpr const char* kDarkMatrixRules = ".frame{stroke:#374151}.right{fill:#3b82f6}.wrong{fill:#ea580c}.on{fill:#ffffff}";

/// The rows and columns that are drawn, each of which stands for so many classes.
struct Cells {
    std::size_t each, count;
    double side;

    explicit Cells(std::size_t classes)
        : each((classes + kMostCells - 1) / kMostCells),
          count((classes + each - 1) / each),
          side(count <= kMostCounted ? kWidestCell : kMatrixSide / static_cast<double>(count)) {}
    [[nodiscard]] double at(std::size_t cell) const { return side * static_cast<double>(cell); }
};

std::string short_name(std::size_t label, const std::vector<std::string>& names) {
    return plot::shortened(label < names.size() ? names[label] : std::to_string(label), kLongestName);
}

std::string names_around(const Cells& cells, const std::vector<std::string>& names) {
    std::string svg;
    // Of many classes the first and the last cell alone.
    for (std::size_t cell = 0; cell < cells.count; cell += cells.count <= kMostNamed ? 1 : cells.count - 1) {
        const std::string name = short_name(cell * cells.each, names);
        const double middle = cells.at(cell) + cells.side / 2;
        svg += plot::text_at(kMatrixLeft - 6, kMatrixTop + middle + 4, "", "end", name);
        svg += fmt::format("<text transform=\"translate({:.1f} {})rotate(-50)\">{}</text>\n", kMatrixLeft + middle + 3,
                           kMatrixTop - 6, plot::xml_text(name));
    }
    return svg;
}

std::string draw_matrix(const Cells& cells, const ClassReport& report) {
    std::vector<double> rows(cells.count);
    for (std::size_t label = 0; label < report.classes.size(); ++label)
        rows[label / cells.each] += static_cast<double>(report.classes[label].samples);
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> counts;
    for (const auto& [pair, count] : report.confusion)
        counts[{static_cast<std::size_t>(pair.first) / cells.each, static_cast<std::size_t>(pair.second) / cells.each}] += count;
    // A path for each colour and shade: many cells need few bytes.
    std::array<std::string, 2 * (kShades + 1)> paths;
    std::string texts;
    for (const auto& [cell, count] : counts) {
        const auto [row, column] = cell;
        const double x = kMatrixLeft + cells.at(column), y = kMatrixTop + cells.at(row), half = cells.side / 2;
        const auto shade = static_cast<std::size_t>(std::ceil(kShades * static_cast<double>(count) / rows[row]));
        paths.at(2 * shade + (row == column ? 0 : 1)) +=
            fmt::format("M{0:.2f} {1:.2f}h{2:.2f}v{2:.2f}h-{2:.2f}z", x, y, cells.side);
        if (report.classes.size() <= kMostCounted)
            texts += plot::text_at(x + half, y + half + 4, shade > kShades / 2 ? "on" : "count", "middle",
                                   count < 100'000 ? std::to_string(count) : fmt::format("{}k", count / 1000));
    }
    std::string svg;
    for (std::size_t i = 0; i < paths.size(); ++i)
        if (!paths[i].empty())
            svg += fmt::format("<path class=\"{}\" fill-opacity=\"{:.2f}\" d=\"{}\"/>\n", i % 2 == 0 ? "right" : "wrong",
                               static_cast<double>(i / 2) / kShades, paths[i]);
    return svg + texts +
           fmt::format("<rect class=\"frame\" x=\"{0}\" y=\"{1}\" width=\"{2:.2f}\" height=\"{2:.2f}\"/>\n", kMatrixLeft,
                       kMatrixTop, cells.at(cells.count));
}

std::string list_confusions(const ClassReport& report, const std::vector<std::string>& names, double& y) {
    const auto listed = most_confused(report, kMostListed);
    std::string svg = plot::text_at(kEdge, y, "title", "start",
                                    listed.empty() ? "No row was taken for another class" : "Most frequent confusions");
    for (const auto& [pair, count] : listed) {
        const auto label = static_cast<std::size_t>(pair.first), prediction = static_cast<std::size_t>(pair.second);
        const std::uint64_t all = report.classes[label].samples;
        const double share = static_cast<double>(count) / static_cast<double>(all);
        y += kListLine;
        svg += plot::text_at(kEdge, y, "", "start",
                             fmt::format("{} taken for {}", short_name(label, names), short_name(prediction, names)));
        svg += plot::text_at(kListColumn, y, "", "start", fmt::format("{} of {} ({:.1f} %)", count, all, 100 * share));
    }
    return svg;
}

}  // namespace

std::string confusion_svg(const ClassReport& report, const std::vector<std::string>& names, const std::string& about) {
    const Cells cells(report.classes.size());
    std::string body = plot::text_at(kEdge, 24, "head", "start", "Confusion matrix");
    body += plot::text_at(kEdge, 42, "axis", "start",
                          fmt::format("{}; accuracy {:.2f} %, macro F1 {:.4f}", about, 100 * report.accuracy, report.macro_f1));
    double width = kTitleWidth, y = 74;
    if (report.classes.size() <= kMostDrawn) {
        std::string legend = "down: the true class; across: the predicted one; shade: share of the row";
        if (cells.each > 1) legend += fmt::format("; a cell is {0} x {0} classes", cells.each);
        body += plot::text_at(kEdge, 58, "axis", "start", legend) + names_around(cells, names) + draw_matrix(cells, report);
        width = std::max(width, kMatrixLeft + cells.at(cells.count) + kLastName);
        y = kMatrixTop + cells.at(cells.count) + 2 * kListLine;
    }
    if (report.classes.size() > kMostCounted) body += list_confusions(report, names, y);
    return plot::svg_begin("Confusion matrix", width, y + kListLine, kMatrixRules, kDarkMatrixRules) + body + "</svg>\n";
}

}  // namespace millrace::models
