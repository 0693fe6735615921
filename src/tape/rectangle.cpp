#include "tape/rectangle.h"

#include <algorithm>

#include "base/result.h"

namespace millrace::tape {
namespace {

/// Makes `a` the union where that is a rectangle.
bool join(Rectangle& a, const Rectangle& b) {
    if (a.row == b.row && a.row_end == b.row_end && a.col <= b.col_end && b.col <= a.col_end) {
        a.col = std::min(a.col, b.col);
        a.col_end = std::max(a.col_end, b.col_end);
        return true;
    }
    if (a.col == b.col && a.col_end == b.col_end && a.row <= b.row_end && b.row <= a.row_end) {
        a.row = std::min(a.row, b.row);
        a.row_end = std::max(a.row_end, b.row_end);
        return true;
    }
    return false;
}

/// Appends what is left of `from` without `cut`: above, left, right, below.
void subtract(const Rectangle& from, const Rectangle& cut, std::vector<Rectangle>& left) {
    const auto keep = [&](const Rectangle& r) {
        if (!r.empty()) left.push_back(r);
    };
    if (!from.meets(cut)) return keep(from);
    const std::int64_t top = std::max(from.row, cut.row), bottom = std::min(from.row_end, cut.row_end);
    keep({from.row, top, from.col, from.col_end});
    keep({top, bottom, from.col, std::max(from.col, cut.col)});
    keep({top, bottom, std::min(from.col_end, cut.col_end), from.col_end});
    keep({bottom, from.row_end, from.col, from.col_end});
}

}  // namespace

bool Cover::meets(const Rectangle& rectangle) const {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Rectangle& part) { return part.meets(rectangle); });
}

std::vector<Rectangle> Cover::gaps(const Rectangle& rectangle) const {
    std::vector<Rectangle> open{rectangle};
    for (const Rectangle& part : parts_) {
        std::vector<Rectangle> left;
        for (const Rectangle& r : open) subtract(r, part, left);
        open = std::move(left);
    }
    std::sort(open.begin(), open.end(),
              [](const Rectangle& a, const Rectangle& b) { return a.row != b.row ? a.row < b.row : a.col < b.col; });
    return open;
}

void Cover::add(const Rectangle& rectangle) {
    for (Rectangle gap : gaps(rectangle)) {
        for (auto part = parts_.begin(); part != parts_.end();) {  // a joined part may in turn join one looked at before
            if (!join(gap, *part)) {
                ++part;
                continue;
            }
            parts_.erase(part);
            part = parts_.begin();
        }
        parts_.push_back(gap);
    }
}

std::vector<Rectangle> rectangles_of(const tensor::View& view, std::int64_t width) {
    std::vector<Rectangle> found;
    const auto add = [&](std::int64_t at, std::int64_t rows, std::int64_t cols) {
        MILLRACE_ASSERT(at % width + cols <= width, "a view's row crosses the rows of its buffer");
        const Rectangle r{at / width, at / width + rows, at % width, at % width + cols};
        if (found.empty() || !join(found.back(), r)) found.push_back(r);
    };
    for (std::int64_t g = 0; g < view.g; ++g) {
        const std::int64_t begin = view.offset + g * view.stride_g;
        if (view.stride_row == width || view.rows == 1)
            add(begin, view.rows, view.cols);
        else if (view.stride_row == view.cols && begin % width + std::int64_t{view.rows} * view.cols <= width)
            add(begin, 1, std::int64_t{view.rows} * view.cols);
        else
            for (std::int64_t r = 0; r < view.rows; ++r) add(begin + r * view.stride_row, 1, view.cols);
        if (view.stride_g == 0) break;
    }
    return found;
}

}  // namespace millrace::tape
