// The native module: each .cpp file of this folder binds its kernels here.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_eltwise(nb::module_ &m);
void bind_etl(nb::module_ &m);
void bind_etl_parquet_write(nb::module_ &m);
void bind_fold(nb::module_ &m);
void bind_formats(nb::module_ &m);

NB_MODULE(_native, m) {
    // Compiled models live until the interpreter ends; that is no leak.
    nb::set_leak_warnings(false);
    m.doc() = "Raw-buffer kernels of Temper.";
    bind_eltwise(m);
    bind_etl(m);
    bind_etl_parquet_write(m);
    bind_fold(m);
    bind_formats(m);
}
