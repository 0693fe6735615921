// Register tiles of the matrix products and their packing. Included after vector.inl. An element of c is one chain of multiply-adds over k in ascending order,
// whatever the tile: so instruction set, tile position and thread leave no trace in it.

namespace {

constexpr int kTileRows = kVectorBytes == 16 ? 4 : kVectorBytes == 32 ? 6 : 8, kTileVectors = kVectorBytes == 16 ? 4 : 2;
constexpr int kTileColumns = kTileVectors * kWidth;
static_assert(kTileRows <= kMaxTileRows && kTileColumns <= kMaxTileColumns);

struct Tile {
    Vector at[kTileRows][kTileVectors] = {};

    inline __attribute__((always_inline)) void write(float* c, std::ptrdiff_t ldc, bool add) const {
#pragma GCC unroll 16
        for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
            for (int v = 0; v < kTileVectors; ++v) {
                float* p = c + i * ldc + v * kWidth;
                store(p, add ? load(p) + at[i][v] : at[i][v]);
            }
        }
    }
};

void tile_rows(int kc, const float* a, std::ptrdiff_t lda, int rows, const float* panel, float* c, std::ptrdiff_t ldc, bool add) {
    const float* row[kTileRows];
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) row[i] = a + (i < rows ? i : rows - 1) * lda;
    Tile tile;
    int k = 0;
    if constexpr (kVectorBytes == 16) {  // four steps of k from one load per row: multiply by a lane needs no broadcast
        for (; k + 4 <= kc; k += 4) {
            Quad av[kTileRows];
#pragma GCC unroll 16
            for (int i = 0; i < kTileRows; ++i) av[i] = load_quad(row[i] + k);
#pragma GCC unroll 4
            for (int step = 0; step < 4; ++step, panel += kTileColumns) {
                Vector bv[kTileVectors];
#pragma GCC unroll 8
                for (int v = 0; v < kTileVectors; ++v) bv[v] = load(panel + v * kWidth);
#pragma GCC unroll 16
                for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
                    for (int v = 0; v < kTileVectors; ++v) tile.at[i][v] += bv[v] * av[i][step];
                }
            }
        }
    }
    for (; k < kc; ++k, panel += kTileColumns) {
        Vector bv[kTileVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) bv[v] = load(panel + v * kWidth);
#pragma GCC unroll 16
        for (int i = 0; i < kTileRows; ++i) {
            const float s = row[i][k];
#pragma GCC unroll 8
            for (int v = 0; v < kTileVectors; ++v) tile.at[i][v] += bv[v] * s;
        }
    }
    tile.write(c, ldc, add);
}

void tile_panels(int kc, const float* a_panel, const float* panel, float* c, std::ptrdiff_t ldc, bool add) {
    Tile tile;
    for (int k = 0; k < kc; ++k, a_panel += kTileRows, panel += kTileColumns) {
        Vector bv[kTileVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) bv[v] = load(panel + v * kWidth);
        if constexpr (kVectorBytes == 16 && kTileRows % 4 == 0) {
            Quad av[kTileRows / 4];
#pragma GCC unroll 4
            for (int i = 0; i < kTileRows / 4; ++i) av[i] = load_quad(a_panel + 4 * i);
#pragma GCC unroll 16
            for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
                for (int v = 0; v < kTileVectors; ++v) tile.at[i][v] += bv[v] * av[i / 4][i % 4];
            }
        } else {
#pragma GCC unroll 16
            for (int i = 0; i < kTileRows; ++i) {
                const float s = a_panel[i];
#pragma GCC unroll 8
                for (int v = 0; v < kTileVectors; ++v) tile.at[i][v] += bv[v] * s;
            }
        }
    }
    tile.write(c, ldc, add);
}

void pack_rows(int k, const float* in, std::ptrdiff_t ld, int cols, int width, float* panel) {
    if (cols == width && width == kTileColumns) {
        for (int i = 0; i < k; ++i, in += ld, panel += kTileColumns) {
#pragma GCC unroll 8
            for (int v = 0; v < kTileVectors; ++v) store(panel + v * kWidth, load(in + v * kWidth));
        }
        return;
    }
    if (cols == width && width == kTileRows) {  // a size the compiler knows: one or two moves instead of a loop
        for (int i = 0; i < k; ++i, in += ld, panel += kTileRows) __builtin_memcpy(panel, in, kTileRows * sizeof(float));
        return;
    }
    for (int i = 0; i < k; ++i, in += ld, panel += width) {
        int j = 0;
        for (; j < cols; ++j) panel[j] = in[j];
        for (; j < width; ++j) panel[j] = 0;
    }
}

void transpose(int rows, int cols, const float* in, std::ptrdiff_t ld_in, float* out, std::ptrdiff_t ld_out) {
    int c = 0;
    for (; c + 4 <= cols; c += 4) {
        int r = 0;
        for (; r + 4 <= rows; r += 4) transpose_quad(in + r * ld_in + c, ld_in, out + c * ld_out + r, ld_out);
        for (; r < rows; ++r) {
            for (int i = 0; i < 4; ++i) out[(c + i) * ld_out + r] = in[r * ld_in + c + i];
        }
    }
    for (; c < cols; ++c) {
        for (int r = 0; r < rows; ++r) out[c * ld_out + r] = in[r * ld_in + c];
    }
}

void pack_transposed(int k, const float* in, std::ptrdiff_t ld, int rows, int width, float* panel) {
    transpose(rows, k, in, ld, panel, width);
    if (rows == width) return;
    for (int i = 0; i < k; ++i) {
        for (int r = rows; r < width; ++r) panel[static_cast<std::ptrdiff_t>(i) * width + r] = 0;
    }
}

}  // namespace
