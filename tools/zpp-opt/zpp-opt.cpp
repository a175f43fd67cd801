#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, mlir::tensor::TensorDialect, zpp::zero::ZeroDialect>();
  zpp::registerGuestDialects(registry);
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "zpp-opt\n", registry));
}
