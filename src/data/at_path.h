#pragma once
#include <fmt/format.h>

#include "base/recipe.h"

namespace millrace::data {

/// An error of what was loaded is one of data.path. Without `training` it says how to name another place.
template <class T>
base::Result<T> at_path(const base::Recipe& recipe, bool training, base::Result<T> loaded) {
    if (loaded.ok()) return loaded;
    base::Error error =
        recipe
            .bad("data.path",
                 fmt::format("cannot load data.path = \"{}\"{}", recipe.text("data.path"),
                             training ? "" : "; --data names the folder when it has moved or the path is not from here"))
            .because(loaded.error());
    error.exit_status = loaded.error().exit_status;
    return error;
}

}  // namespace millrace::data
