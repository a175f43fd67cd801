// The driver of mlir-runner.mlir.

llvm.mlir.global internal constant @backend("cpu\00")
llvm.mlir.global internal constant @mesh("gpu:2\00")
// zpp_rt_world_desc: struct_size, backend, mesh, time_limit_usec, trace, and five
// pointers that are null.
llvm.mlir.global internal constant @world_desc() : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)> {
  %size = llvm.mlir.constant(80 : i64) : i64
  %limit = llvm.mlir.constant(10000000 : i64) : i64
  %backend = llvm.mlir.addressof @backend : !llvm.ptr
  %mesh = llvm.mlir.addressof @mesh : !llvm.ptr
  %0 = llvm.mlir.zero : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)>
  %1 = llvm.insertvalue %size, %0[0] : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)>
  %2 = llvm.insertvalue %backend, %1[1] : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)>
  %3 = llvm.insertvalue %mesh, %2[2] : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)>
  %4 = llvm.insertvalue %limit, %3[3] : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)>
  llvm.return %4 : !llvm.struct<(i64, ptr, ptr, i64, i64, array<5 x ptr>)>
}
llvm.mlir.global internal @world() : !llvm.ptr {
  %0 = llvm.mlir.zero : !llvm.ptr
  llvm.return %0 : !llvm.ptr
}

llvm.func @zpp_rt_world_create(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> i32
llvm.func @zpp_rt_world_destroy(!llvm.ptr)
llvm.func @zpp_rt_rank_create(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> i32
llvm.func @zpp_rt_rank_synchronize(!llvm.ptr) -> i32
llvm.func @zpp_rt_rank_destroy(!llvm.ptr)
llvm.func @pthread_create(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
llvm.func @pthread_join(i64, !llvm.ptr) -> i32

// MLIR's descriptor of a dense memref<Nxf32>.
llvm.func internal @describe(%data: !llvm.ptr, %size: i64, %descriptor: !llvm.ptr) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %0 = llvm.mlir.zero : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %1 = llvm.insertvalue %data, %0[0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %2 = llvm.insertvalue %data, %1[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %3 = llvm.insertvalue %zero, %2[2] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %4 = llvm.insertvalue %size, %3[3, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  %5 = llvm.insertvalue %one, %4[4, 0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
  llvm.store %5, %descriptor : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>, !llvm.ptr
  llvm.return
}

// One rank, whose number is the argument; returns the sum of its results.
llvm.func @run(%argument: !llvm.ptr) -> !llvm.ptr {
  %one = llvm.mlir.constant(1 : i64) : i64
  %two = llvm.mlir.constant(2 : i64) : i64
  %any = llvm.mlir.constant(-1 : i64) : i64
  %zero = llvm.mlir.constant(0 : i64) : i64
  %scale = llvm.mlir.constant(127 : i64) : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %world = llvm.mlir.addressof @world : !llvm.ptr
  %worldHandle = llvm.load %world : !llvm.ptr -> !llvm.ptr
  %index = llvm.ptrtoint %argument : !llvm.ptr to i64
  %slot = llvm.alloca %one x !llvm.ptr : (i64) -> !llvm.ptr
  // zpp_rt_rank_desc: struct_size, index, device.
  %rankSize = llvm.mlir.constant(24 : i64) : i64
  %rankDesc = llvm.alloca %one x !llvm.struct<(i64, i64, i64)> : (i64) -> !llvm.ptr
  %desc0 = llvm.mlir.zero : !llvm.struct<(i64, i64, i64)>
  %desc1 = llvm.insertvalue %rankSize, %desc0[0] : !llvm.struct<(i64, i64, i64)>
  %desc2 = llvm.insertvalue %index, %desc1[1] : !llvm.struct<(i64, i64, i64)>
  %desc3 = llvm.insertvalue %any, %desc2[2] : !llvm.struct<(i64, i64, i64)>
  llvm.store %desc3, %rankDesc : !llvm.struct<(i64, i64, i64)>, !llvm.ptr
  %created = llvm.call @zpp_rt_rank_create(%worldHandle, %rankDesc, %slot, %null, %zero) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> i32
  %rank = llvm.load %slot : !llvm.ptr -> !llvm.ptr
  %in = llvm.alloca %one x f32 : (i64) -> !llvm.ptr
  %out = llvm.alloca %two x f32 : (i64) -> !llvm.ptr
  %number = llvm.add %index, %one : i64
  %scaled = llvm.mul %number, %scale : i64
  %value = llvm.sitofp %scaled : i64 to f32
  llvm.store %value, %in : f32, !llvm.ptr
  %inBuffer = llvm.alloca %one x !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> : (i64) -> !llvm.ptr
  %outBuffer = llvm.alloca %one x !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)> : (i64) -> !llvm.ptr
  llvm.call @describe(%in, %one, %inBuffer) : (!llvm.ptr, i64, !llvm.ptr) -> ()
  llvm.call @describe(%out, %two, %outBuffer) : (!llvm.ptr, i64, !llvm.ptr) -> ()
  llvm.call @_mlir_ciface_step(%rank, %inBuffer, %outBuffer) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  %status = llvm.call @zpp_rt_rank_synchronize(%rank) : (!llvm.ptr) -> i32
  llvm.call @zpp_rt_rank_destroy(%rank) : (!llvm.ptr) -> ()
  %first = llvm.load %out : !llvm.ptr -> f32
  %address = llvm.getelementptr %out[1] : (!llvm.ptr) -> !llvm.ptr, f32
  %second = llvm.load %address : !llvm.ptr -> f32
  %sum = llvm.fadd %first, %second : f32
  %whole = llvm.fptosi %sum : f32 to i64
  %wide = llvm.zext %status : i32 to i64
  %failed = llvm.icmp "ne" %wide, %zero : i64
  %result = llvm.select %failed, %zero, %whole : i1, i64
  %pointer = llvm.inttoptr %result : i64 to !llvm.ptr
  llvm.return %pointer : !llvm.ptr
}

// The result of both ranks, or 0 if they differ.
llvm.func @main() -> i32 {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %first = llvm.mlir.zero : !llvm.ptr
  %second = llvm.inttoptr %one : i64 to !llvm.ptr
  %desc = llvm.mlir.addressof @world_desc : !llvm.ptr
  %world = llvm.mlir.addressof @world : !llvm.ptr
  %run = llvm.mlir.addressof @run : !llvm.ptr
  %created = llvm.call @zpp_rt_world_create(%desc, %world, %null, %zero) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> i32
  %thread0 = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
  %thread1 = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
  %result0 = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
  %result1 = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
  %0 = llvm.call @pthread_create(%thread0, %null, %run, %first) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  %1 = llvm.call @pthread_create(%thread1, %null, %run, %second) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  %handle0 = llvm.load %thread0 : !llvm.ptr -> i64
  %handle1 = llvm.load %thread1 : !llvm.ptr -> i64
  %2 = llvm.call @pthread_join(%handle0, %result0) : (i64, !llvm.ptr) -> i32
  %3 = llvm.call @pthread_join(%handle1, %result1) : (i64, !llvm.ptr) -> i32
  %handle = llvm.load %world : !llvm.ptr -> !llvm.ptr
  llvm.call @zpp_rt_world_destroy(%handle) : (!llvm.ptr) -> ()
  %sum0 = llvm.load %result0 : !llvm.ptr -> i64
  %sum1 = llvm.load %result1 : !llvm.ptr -> i64
  %agree = llvm.icmp "eq" %sum0, %sum1 : i64
  %sum = llvm.select %agree, %sum0, %zero : i1, i64
  %result = llvm.trunc %sum : i64 to i32
  llvm.return %result : i32
}
