#pragma once
// Which elements of a buffer were written, as rectangles of rows and columns. One member's part stands for all members.

#include <cstdint>
#include <vector>

#include "tensor/view.h"

namespace millrace::tape {

/// Rows [row, row_end) and columns [col, col_end).
struct Rectangle {
    std::int64_t row = 0, row_end = 0, col = 0, col_end = 0;
    [[nodiscard]] bool empty() const { return row >= row_end || col >= col_end; }
    [[nodiscard]] bool meets(const Rectangle& o) const {
        return row < o.row_end && o.row < row_end && col < o.col_end && o.col < col_end;
    }
};

/// A set of elements, kept as disjoint rectangles.
class Cover {
public:
    void add(const Rectangle& rectangle);
    void clear() { parts_.clear(); }
    [[nodiscard]] bool meets(const Rectangle& rectangle) const;
    /// What of `rectangle` is not in the set: disjoint, from the first row on, and from the first column on within a row.
    [[nodiscard]] std::vector<Rectangle> gaps(const Rectangle& rectangle) const;

private:
    std::vector<Rectangle> parts_;
};

/// The elements of `view` inside one member, whose rows are `width` elements each; groups may lie side by side or below each
/// other. Disjoint, joined where neighbours make one rectangle.
std::vector<Rectangle> rectangles_of(const tensor::View& view, std::int64_t width);

}  // namespace millrace::tape
